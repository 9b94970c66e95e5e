"""The door to package indexes: pages, metadata, files, their cache, and where the target's pip or uv looks."""
