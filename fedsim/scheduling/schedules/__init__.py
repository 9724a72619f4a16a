"""Schedules: when to dispatch, wait, cut and aggregate. One file per family."""
