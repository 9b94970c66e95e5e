"""The lock: a resolution as a committed file (PEP 751), written, read back, and held against a machine."""
