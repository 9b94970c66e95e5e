"""The one consistent choice for a request on a machine, or the conflict that forbids it."""
