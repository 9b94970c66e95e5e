"""The commands without their output: typed requests in, typed results out."""
