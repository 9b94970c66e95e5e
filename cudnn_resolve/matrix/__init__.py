"""Curated tables as typed rows, their rules, and the questions that a resolution may ask of them."""
