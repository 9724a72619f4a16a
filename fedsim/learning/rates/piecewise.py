"""Piecewise linear learning rates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pydantic import Field, model_validator

from fedsim.learning.rates.base import CountingParams, CountingSchedule


class PiecewiseParams(CountingParams):
    """Parameters of piecewise linear rates."""

    points: list[tuple[float, float]] = Field(min_length=1)
    """Pairs of t, in rounds (or seconds), and factor: ``[[0, 0.1], [100, 1]]`` is a warm-up of 100 rounds,
    ``[[2000, 1], [2000, 0.01]]`` two phases."""

    @model_validator(mode="after")
    def _in_order(self) -> PiecewiseParams:
        times = [t for t, _ in self.points]
        if times != sorted(times):
            raise ValueError(f"the points must be in order of t, which is {times}")
        if min(factor for _, factor in self.points) <= 0:
            raise ValueError("a factor must be above zero")
        return self


class Piecewise(CountingSchedule):
    """lr x a piecewise linear factor, for a warm-up, phases or steps.

    The factor is the first point's before it and the last point's after it. Two points at the same t are a step; the
    second applies from t on.
    """

    name = "piecewise"
    Params = PiecewiseParams

    def factor_at(self, t: float) -> float:
        """The value at ``t`` of the lines through the points."""
        points: Sequence[tuple[float, float]] = self.params.points
        following = bisect_right(points, t, key=lambda point: point[0])
        if following == 0:
            return points[0][1]
        begin, before = points[following - 1]
        if following == len(points):
            return before
        end, after = points[following]
        return before + (after - before) * (t - begin) / (end - begin)
