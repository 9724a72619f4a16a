"""Learning rates that follow the round or the simulated time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from fedsim.scenario.training import (
    ConstantRate,
    CosineRate,
    ExponentialRate,
    PiecewiseRate,
    RateSchedule,
    Training,
)


def learning_rate(training: Training) -> Callable[[int, float], float]:
    """The local learning rate as a function of round and simulated seconds."""
    base = training.optimizer.lr
    schedule = training.lr_schedule
    if isinstance(schedule, ConstantRate):
        return lambda round_number, time_s: base
    by_time = schedule.by == "time"
    return lambda round_number, time_s: (
        base * _factor(schedule, time_s if by_time else float(round_number))
    )


def _factor(schedule: RateSchedule, t: float) -> float:
    if isinstance(schedule, ExponentialRate):
        return float(schedule.factor ** math.floor(t / schedule.every))
    if isinstance(schedule, CosineRate):
        share = min(t / schedule.length, 1.0)
        return schedule.floor + (1 - schedule.floor) * 0.5 * (1 + math.cos(math.pi * share))
    if isinstance(schedule, PiecewiseRate):
        return _between(schedule.points, t)
    if isinstance(schedule, ConstantRate):
        return 1.0
    return 1.0 / math.sqrt(t / schedule.scale + 1.0)


def _between(points: Sequence[tuple[float, float]], t: float) -> float:
    """The value at ``t`` of straight lines through ``points``; of two at one place the second holds from there on."""
    following = bisect_right(points, t, key=lambda point: point[0])
    if following == 0:
        return points[0][1]
    begin, before = points[following - 1]
    if following == len(points):
        return before
    end, after = points[following]
    return before + (after - before) * (t - begin) / (end - begin)
