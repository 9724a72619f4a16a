"""The composition root: builds the objects of a run from a scenario, and runs it."""
