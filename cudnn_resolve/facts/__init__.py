"""What a machine and a Python environment are."""
