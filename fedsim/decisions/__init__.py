"""Answers from many runs: which settings to choose, and how long a scenario will take."""

from fedsim.decisions.deciding import Decision, decide

__all__ = ["Decision", "decide"]
