"""The population: per-client columns of compute, memory, energy, link and availability."""
