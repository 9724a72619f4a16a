"""Schedules and selections: when to dispatch work and to which clients."""
