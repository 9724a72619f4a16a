"""Selections: which clients to dispatch. One file each."""
