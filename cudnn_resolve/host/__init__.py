"""The door to the machine: run a program, read a file, list a directory."""
