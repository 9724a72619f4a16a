"""The inverse square root."""

from __future__ import annotations

import math

from pydantic import Field

from fedsim.learning.rates.base import CountingParams, CountingSchedule


class InverseSqrtParams(CountingParams):
    """Parameters of the inverse square root."""

    scale: float = Field(default=10.0, gt=0)
    """Rounds (or seconds) after which the rate has fallen to 1 / sqrt(2)."""


class InverseSqrt(CountingSchedule):
    """lr / sqrt(t / scale + 1), t in rounds (or seconds)."""

    name = "inverse_sqrt"
    Params = InverseSqrtParams

    def factor_at(self, t: float) -> float:
        """1 / sqrt(t / scale + 1)."""
        return 1.0 / math.sqrt(t / self.params.scale + 1.0)
