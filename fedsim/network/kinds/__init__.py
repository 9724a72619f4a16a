"""The kinds of network that a scenario can name."""
