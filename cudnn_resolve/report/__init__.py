"""Values as text and JSON: every function answers a text and prints nothing."""
