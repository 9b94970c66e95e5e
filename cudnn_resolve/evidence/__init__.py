"""What the files of a wheel say of themselves, and what follows from it for an environment."""
