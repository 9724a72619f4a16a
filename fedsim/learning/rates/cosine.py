"""Cosine annealing."""

from __future__ import annotations

import math

from pydantic import Field

from fedsim.learning.rates.base import CountingParams, CountingSchedule


class CosineParams(CountingParams):
    """Parameters of cosine annealing."""

    length: float = Field(gt=0)
    """Rounds (or seconds) until the rate reaches its floor."""
    floor: float = Field(default=0.0, ge=0, le=1)
    """Final rate as a share of lr."""


class Cosine(CountingSchedule):
    """From lr down to lr x floor along half a cosine over ``length``, then constant."""

    name = "cosine"
    Params = CosineParams

    def factor_at(self, t: float) -> float:
        """floor + (1 - floor) (1 + cos(pi t / length)) / 2, t at most length."""
        share, floor = min(t / self.params.length, 1.0), float(self.params.floor)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))
