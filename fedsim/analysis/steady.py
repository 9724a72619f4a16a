"""The throughput of a run in its steady state: without the warm-up, and with an interval from one run alone.

A run begins with all clients idle, so the beginning of its series is not typical. The rule MSER-5 (White, Cobb and
Spratt, A comparison of five steady-state truncation heuristics for simulation, Winter Simulation Conference 2000) drops
the beginning without which the standard error of the rest is smallest. The rest is correlated, so its interval is that
of the means of :data:`BATCHES` long batches, which are almost independent (Schmeiser, Batch size effects in the
analysis of simulation output, Operations Research 30, 1982). A cycle, such as nights, belongs to the steady state: a
run must be many cycles long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsim.analysis.precision import students_half_width
from fedsim.analysis.statistics import update_intervals_s
from fedsim.runs import Run
from fedsim.vocabulary.arrays import Floats

BATCHES = 20
_AVERAGED = 5


@dataclass(frozen=True)
class Steady:
    """A throughput in the steady state.

    Attributes:
        per_h: client updates that entered the model per simulated hour.
        half_width: half-width of the 95% interval, in the same unit.
        warm_up_s: simulated seconds that were dropped.
    """

    per_h: float
    half_width: float
    warm_up_s: float


def throughput(run: Run) -> Steady | None:
    """The throughput of a run; None if it has fewer than 100 server updates, or is all warm-up.

    The observations are the intervals between server updates. The throughput is the number of client updates in them
    divided by their length.
    """
    table = run.device_aggregations.sort_values("time_s", kind="stable")
    intervals_s = update_intervals_s(table)
    if len(intervals_s) < BATCHES * _AVERAGED or (dropped := warm_up(intervals_s)) is None:
        return None
    counts = table["contributors"].to_numpy()
    updates, hours = counts[dropped:].astype(np.float64), intervals_s[dropped:] / 3600.0
    per_h = float(updates.sum() / hours.sum())
    return Steady(per_h, batch_half_width(updates, hours), float(intervals_s[:dropped].sum()))


def warm_up(values: Floats) -> int | None:
    """The number of observations that MSER-5 drops; None if it would drop half of them or more.

    With the means z of :data:`_AVERAGED` values each, of which the first d are dropped, it minimizes the sum of
    (z - mean)**2 over the other n - d, divided by (n - d)**2.
    """
    means = values[: len(values) // _AVERAGED * _AVERAGED].reshape(-1, _AVERAGED).mean(axis=1)
    left = np.arange(len(means), 0, -1)
    # Sums from each place to the end; centered, so that squares do not cancel.
    centered = means - means.mean()
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (centered, centered**2))
    errors = (squares - sums**2 / left) / left**2
    dropped = int(errors[: len(means) // 2 + 1].argmin())
    return None if dropped == len(means) // 2 else dropped * _AVERAGED


def batch_half_width(values: Floats, lengths: Floats | None = None) -> float:
    """Half-width of the 95% interval of the mean of correlated values, from the means of their batches.

    Args:
        values: the values, in order.
        lengths: what a mean is divided by instead of the number of values, same shape.
    """
    divisors = np.ones(len(values)) if lengths is None else lengths
    batches = zip(np.array_split(values, BATCHES), np.array_split(divisors, BATCHES), strict=True)
    return students_half_width(np.array([batch.sum() / length.sum() for batch, length in batches]))
