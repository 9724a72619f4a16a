"""A constant learning rate."""

from __future__ import annotations

from fedsim.learning.rates.base import RateSchedule


class Constant(RateSchedule):
    """The learning rate of the optimizer, always."""

    name = "constant"

    def factor(self, round_number: int, time_s: float) -> float:
        """1."""
        return 1.0
