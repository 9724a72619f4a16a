"""Answers from many runs: which settings to choose, and how long a scenario will take."""

from fedsim.decisions.deciding import decide
from fedsim.decisions.decision import Decision

__all__ = ["Decision", "decide"]
