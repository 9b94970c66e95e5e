"""Requests: what must hold, and why."""
