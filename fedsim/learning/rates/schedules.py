"""The learning-rate schedules that ship with fedsim."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from pydantic import Field, model_validator

from fedsim.learning.rates import CountingParams, CountingSchedule, RateSchedule


class Constant(RateSchedule):
    """The learning rate of the optimizer, always."""

    name = "constant"

    def factor(self, round_number: int, time_s: float) -> float:
        return 1.0


class Cosine(CountingSchedule):
    """From lr down to lr x floor along half a cosine over ``length``, then constant."""

    name = "cosine"

    class Params(CountingParams):
        length: float = Field(gt=0)
        """Rounds (or seconds) until the rate reaches its floor."""
        floor: float = Field(default=0.0, ge=0, le=1)
        """Final rate as a share of lr."""

    def factor_at(self, t: float) -> float:
        share, floor = min(t / self.params.length, 1.0), float(self.params.floor)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))


class Exponential(CountingSchedule):
    """lr x factor^(t / every), stepwise: the exponent is rounded down."""

    name = "exponential"

    class Params(CountingParams):
        factor: float = Field(default=0.99, gt=0, le=1)
        """Factor per step of the schedule."""
        every: float = Field(default=1.0, gt=0)
        """Rounds (or seconds) between two steps."""

    def factor_at(self, t: float) -> float:
        return float(self.params.factor ** math.floor(t / self.params.every))


class InverseSqrt(CountingSchedule):
    """lr / sqrt(t / scale + 1), t in rounds (or seconds)."""

    name = "inverse_sqrt"

    class Params(CountingParams):
        scale: float = Field(default=10.0, gt=0)
        """Rounds (or seconds) after which the rate has fallen to 1 / sqrt(2)."""

    def factor_at(self, t: float) -> float:
        return 1.0 / math.sqrt(t / self.params.scale + 1.0)


class Piecewise(CountingSchedule):
    """lr x a piecewise linear factor, for a warm-up, phases or steps.

    The factor is the first point's before it and the last point's after it. Two points at the same t are a step; the
    second applies from t on.
    """

    name = "piecewise"

    class Params(CountingParams):
        points: list[tuple[float, float]] = Field(min_length=1)
        """Pairs of t, in rounds (or seconds), and factor: ``[[0, 0.1], [100, 1]]`` is a warm-up of 100 rounds,
        ``[[2000, 1], [2000, 0.01]]`` two phases."""

        @model_validator(mode="after")
        def _in_order(self) -> Piecewise.Params:
            times = [t for t, _ in self.points]
            if times != sorted(times):
                raise ValueError(f"the points must be in order of t, which is {times}")
            if min(factor for _, factor in self.points) <= 0:
                raise ValueError("a factor must be above zero")
            return self

    def factor_at(self, t: float) -> float:
        points: Sequence[tuple[float, float]] = self.params.points
        following = bisect_right(points, t, key=lambda point: point[0])
        if following == 0:
            return points[0][1]
        begin, before = points[following - 1]
        if following == len(points):
            return before
        end, after = points[following]
        return before + (after - before) * (t - begin) / (end - begin)
