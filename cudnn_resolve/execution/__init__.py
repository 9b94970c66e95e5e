"""Carries a plan out: a journal, the steps, and the way back."""
