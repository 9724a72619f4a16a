"""A metric against time or cost, as mean and band over the runs of a group.

Between two evaluations, and after the last one, a run's value is that of its last evaluation: the model that the
server has at that moment was measured then. A group's curve begins when all its runs have been measured and ends
with its longest run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.figures.base import thin

Floats = npt.NDArray[np.float64]

MAX_POINTS = 200


@dataclass(frozen=True)
class Curve:
    """Mean and band of one group at the points of a grid; NaN where the group has no value.

    Attributes:
        group: the group.
        mean: over its runs.
        low, high: mean minus and plus one standard deviation (n - 1); NaN for a single run.
    """

    group: Group
    mean: Floats
    low: Floats
    high: Floats


def curves(
    groups: Sequence[Group], metric: str, against: str, limit: int = MAX_POINTS
) -> tuple[Floats, list[Curve]]:
    """The grid of a setting, about ``limit`` points at most, and the curve of each of its groups on it."""
    grid_points = grid(groups, metric, against, limit)
    return grid_points, [curve(group, metric, against, grid_points) for group in groups]


def points(run: RunFacts, metric: str, against: str) -> tuple[Floats, Floats]:
    """Costs and values of a run's evaluations of a metric."""
    if metric not in run.metrics:
        return np.zeros(0), np.zeros(0)
    known = run.progress[metric].notna()
    rows = run.progress[known]
    return rows[against].to_numpy(dtype=np.float64), rows[metric].to_numpy(dtype=np.float64)


def grid(groups: Sequence[Group], metric: str, against: str, limit: int = MAX_POINTS) -> Floats:
    """The costs at all evaluations, thinned to about ``limit`` points."""
    grid_points = [points(run, metric, against)[0] for group in groups for run in group.runs]
    every = np.unique(np.concatenate([np.zeros(0), *grid_points]))
    return every[thin(len(every), limit)]


def value_at(run: RunFacts, metric: str, against: str, grid_points: Floats) -> Floats:
    """The last value measured at or before each point; NaN before the first."""
    x, y = points(run, metric, against)
    last = np.searchsorted(x, grid_points, side="right") - 1
    return np.where(last >= 0, y[last], np.nan) if len(x) else np.full(len(grid_points), np.nan)


def curve(group: Group, metric: str, against: str, grid_points: Floats) -> Curve:
    """The curve of a group on a grid."""
    values = np.stack([value_at(run, metric, against, grid_points) for run in group.runs])
    ends = [points(run, metric, against)[0].max(initial=-np.inf) for run in group.runs]
    values[:, grid_points > max(ends)] = np.nan
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(len(grid_points), np.nan)
    return Curve(group, mean, mean - spread, mean + spread)
