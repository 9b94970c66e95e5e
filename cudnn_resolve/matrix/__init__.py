"""The curated tables as typed rows, their laws, and the questions that a resolution may ask."""
