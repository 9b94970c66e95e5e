"""Proof that a stack works: frameworks and cuDNN do real work in children of the target interpreter, and what came out is judged."""
