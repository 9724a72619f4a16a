"""Benchmarks of the Flower bridge."""
