"""A metric against time or cost: the runs of a group, their median, and the band from the lowest to the highest.

Between two evaluations, and after the last one, a run's value is that of its last evaluation. A group's median begins
when all its runs have been measured and ends when fewer than half of them go on, or when a run's value is no longer
finite; the line of a run ends with the run. A band never goes beyond what a run reached.

The lower bound on the time of a curve is when the devices can have computed as many updates as the model contains.
Client i needs the time tau_i for an update, if its speed is fixed and it is always online. Whatever the schedule, n
updates need at least the least time t with floor(t / tau_1) + floor(t / tau_2) + ... >= n: no client waits, and no
update is lost or stale. (Tyurin and Richtarik, NeurIPS 2023, bound the number of updates that a method needs as well,
up to constants; here it is the method's own.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis.comparison.facts import CLIENT_UPDATES, RunFacts
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.figures.base import COMPRESSED, LATE, thin
from fedsim.runs import Run, RunFolder
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.metrics import MetricDefinition

MAX_POINTS = 200
RUNS_UP_TO = 6
"""Largest number of variants in one plot whose runs are drawn by default; more would hide each other."""
_ROOM = 0.06
"""Room above and below the late part, as a share of its range."""


def points(run: RunFacts, metric: str, against: str) -> tuple[Floats, Floats]:
    """Costs and values of a run's evaluations of a metric."""
    if metric not in run.metrics:
        return np.zeros(0), np.zeros(0)
    values, costs = run.progress[metric], run.progress[against]
    known = ~np.isnan(values)
    if metric in run.lost:
        # The curve ends at the first evaluation that is not finite.
        values = np.where(np.isfinite(values), values, np.nan)
        known = ~np.isnan(values)
        known[int(np.flatnonzero(known).max(initial=-1)) + 1] = True
    return costs[known], values[known]


def curves(
    groups: Sequence[Group], metric: str, against: str, limit: int = MAX_POINTS
) -> tuple[Floats, list[dict[str, Floats]]]:
    """The curves of groups at the costs of all their evaluations, thinned to about ``limit`` points.

    Returns:
        The costs; and for each group the ``median`` over its runs, ``low`` and ``high``: their smallest and largest
        value, NaN for a single run; and ``runs``, one row per run, NaN after its end. All are NaN where there is no
        value.
    """
    measured = [[points(run, metric, against) for run in group.runs] for group in groups]
    every = np.unique(np.concatenate([np.zeros(0), *(c for each in measured for c, _ in each)]))
    x = every[thin(len(every), limit)]
    ends = np.unique([c[-1] for each in measured for c, _ in each if len(c)])
    if len(ends) <= limit:
        # A run is drawn to its last value, which may be the one that reached the target.
        x = np.union1d(x, ends)
    return x, [_curve(each, x) for each in measured]


def _curve(measured: Sequence[tuple[Floats, Floats]], x: Floats) -> dict[str, Floats]:
    # The last value measured at or before each point, NaN before the first.
    at = [np.concatenate([[np.nan], v])[c.searchsorted(x, side="right")] for c, v in measured]
    values = np.stack(at)
    ends = np.array([costs[-1] if len(costs) else -np.inf for costs, _ in measured])
    runs = np.where(x > ends[:, None], np.nan, values)
    values[:, x > np.sort(ends)[len(ends) // 2]] = np.nan
    low, high = (values.min(axis=0), values.max(axis=0)) if len(values) > 1 else (x + np.nan,) * 2
    return {"median": np.median(values, axis=0), "low": low, "high": high, "runs": runs}


def late_range(
    curves: pd.DataFrame, metric: MetricDefinition, *, bands: bool
) -> tuple[float, float] | None:
    """The range of the late part of curves, with the last and the best value of each; None if the early part does not
    compress it. The rule is that of ``lateRange`` in ``charts.js``; a test compares both.

    Args:
        curves: rows ``setting label x median low high``.
        metric: their metric.
        bands: whether the bands are in the range, too.
    """
    x = curves.groupby("setting")["x"]
    first, last = x.transform("min"), x.transform("max")
    rows = curves.assign(late=curves["x"] >= first + LATE * (last - first)).melt(
        ["setting", "label", "late"], ["median", "low", "high"] if bands else ["median"]
    )
    rows = rows.dropna(subset="value")
    values, by_curve = rows["value"], rows.groupby(["setting", "label", "variable"])["value"]
    ends = np.concatenate([values[rows["late"]], by_curve.last(), by_curve.agg(metric.best)])
    if not len(ends):
        return None
    size = float(np.ptp(ends))
    if not 0 < size <= COMPRESSED * float(np.ptp(values)):
        return None
    low, high = float(ends.min()), float(ends.max())
    # Room above and below, but not beyond the possible values.
    bottom, top = low - _ROOM * size, high + _ROOM * size
    return (
        max(bottom, 0.0) if low >= 0 else bottom,
        min(top, 1.0) if metric.unit == "share" and high <= 1 else top,
    )


def bounded(run: RunFacts) -> RunFacts:
    """The facts of a run whose evaluations are at their lower bounds instead of their times."""
    times_s = earliest_s(durations_s(Run(RunFolder(run.path))), run.progress[CLIENT_UPDATES])
    return replace(run, progress=run.progress | {"time_s": times_s})


def durations_s(run: Run) -> Floats:
    """The least time of an update of each client at its nominal speed and rates, (N,): with the fewest steps and bytes
    of its updates that were used, or of all clients' if none was."""
    clients, used = run.clients, run.dispatches[run.dispatches["aggregated_version"].notna()]
    least = used.groupby("client_id")[["steps_done", "bytes_down", "bytes_up"]].min()
    least = least.reindex(clients["client_id"]).fillna(least.min())
    compute_s: Floats = clients["step_s"].to_numpy(float) * least["steps_done"].to_numpy(float)
    transfers_s = np.zeros_like(compute_s)
    for way in ("down", "up"):
        size_bytes = least[f"bytes_{way}"].to_numpy(float)
        rate_bps = clients[f"{way}_bps"].to_numpy(float)
        # Without a nominal rate, transfers do not count.
        transfers_s += np.nan_to_num(8 * size_bytes / np.where(rate_bps > 0, rate_bps, np.inf))
    if run.info.get("steps_ahead"):
        return np.maximum(compute_s, transfers_s)  # they overlap
    return compute_s + transfers_s


def earliest_s(durations_s: Floats, counts: npt.NDArray[np.number]) -> Floats:
    """The least times at which clients with these durations have done these numbers of updates, to the nanosecond."""
    taus = durations_s[np.isfinite(durations_s)]
    if not taus.all() or not len(taus):
        return np.zeros(len(counts))  # a client needs no time, or no time is known
    needed, back = np.unique(counts, return_inverse=True)
    # The fastest client alone would need needed x its time.
    low, high = np.zeros(len(needed)), needed * taus.min()
    for _ in range(64):
        middle = (low + high) / 2
        # Rounded up by a little, so that a multiple of a duration counts.
        done = np.array([np.floor(t / taus * (1 + 1e-12) + 1e-12).sum() for t in middle])
        low, high = np.where(done < needed, middle, low), np.where(done < needed, high, middle)
    times_s: Floats = high[back].round(9)
    return times_s
