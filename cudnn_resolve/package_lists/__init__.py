"""Packages that other tools install: their locks, lists, notebooks, scripts and image files."""
