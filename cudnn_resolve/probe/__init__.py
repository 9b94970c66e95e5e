"""Asks a host and gives facts."""
