"""Many machines: what each of them is, the classes of those that are alike, and what becomes of them."""
