"""The models, one file per family."""
