"""Apply a plan: journal, installers, and the way back."""
