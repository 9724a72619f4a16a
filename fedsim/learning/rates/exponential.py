"""Exponential decay in steps."""

from __future__ import annotations

import math

from pydantic import Field

from fedsim.learning.rates.base import CountingParams, CountingSchedule


class ExponentialParams(CountingParams):
    """Parameters of exponential decay."""

    factor: float = Field(default=0.99, gt=0, le=1)
    """Factor per step of the schedule."""
    every: float = Field(default=1.0, gt=0)
    """Rounds (or seconds) between two steps."""


class Exponential(CountingSchedule):
    """lr x factor^(t / every), stepwise: the exponent is rounded down."""

    name = "exponential"
    Params = ExponentialParams

    def factor_at(self, t: float) -> float:
        """factor^floor(t / every)."""
        return float(self.params.factor ** math.floor(t / self.params.every))
