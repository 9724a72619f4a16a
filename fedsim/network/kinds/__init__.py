"""The kinds of network that a scenario can name, one file each."""
