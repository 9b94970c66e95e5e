"""What must hold, and because of what."""
