"""Asks a host and gives facts; the entry is `probe.probe.detect`."""
