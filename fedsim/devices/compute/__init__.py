"""Compute models: how long a local step takes."""
