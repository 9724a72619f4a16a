"""Families of synthetic availability, one file each."""
