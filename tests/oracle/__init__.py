"""A second simulator of the documented rules, by brute force, to compare fedsim with.

It is written from the pages on time, schedules and the scenario's keys alone. It shares no code with fedsim, except
that the draws of failures are read from :mod:`fedsim.randomness`. Time is a whole number of nanoseconds, everything
else an exact fraction. It is as simple as it can be: lists instead of indices, everything computed again at each
event.
"""
