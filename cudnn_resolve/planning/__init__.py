"""Plans: the ordered steps from the facts of a machine to a resolution or a lock."""
