"""Many machines: their facts, classes of equal ones, and the results of a verb."""
