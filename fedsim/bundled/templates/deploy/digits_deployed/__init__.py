"""The scenario of this folder as a Flower app."""
