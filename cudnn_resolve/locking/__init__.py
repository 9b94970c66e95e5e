"""Locks: a resolution as a committed file (PEP 751), written, read back, and compared with a machine."""
