"""Comparison of runs: how good each variant became, when, at what cost, and how certain the differences are."""

from fedsim.analysis.comparison.comparison import Comparison, compare
from fedsim.analysis.comparison.targets import Target

__all__ = ["Comparison", "Target", "compare"]
