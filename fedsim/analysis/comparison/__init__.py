"""Runs side by side: who got how good, when, at what cost, and whether the difference is more than chance."""

from fedsim.analysis.comparison.comparison import Comparison, compare
from fedsim.analysis.comparison.targets import Target

__all__ = ["Comparison", "Target", "compare"]
