"""What each command does, without printing: typed requests in, values out."""
