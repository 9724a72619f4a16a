"""Selections: which clients to dispatch. One file per family."""
