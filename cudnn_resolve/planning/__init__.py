"""What would be done: the difference between facts and a resolution, as ordered steps."""
