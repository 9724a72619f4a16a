"""The board: which method reaches a target first, on which devices."""
