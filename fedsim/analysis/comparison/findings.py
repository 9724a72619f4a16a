"""Findings of a comparison, as numbers and names: the first and the best groups, and the comparison with a paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.curves import curve, grid
from fedsim.analysis.comparison.facts import COSTS
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import INTERVAL_RUNS, Target, evaluation_gap_s
from fedsim.analysis.figures.base import shortened
from fedsim.formatting import format_names

_MOST_NUMBERS = 100_000
"""Maximum count of numbers in all curves of a page, which keeps its data below one megabyte."""


@dataclass(frozen=True)
class First:
    """The groups that reached a target first; several if they tie.

    Attributes:
        labels: labels of the first groups, in their order.
        names: the same with their settings, if there are several.
        setting: setting of the first of them.
        time_s: mean time over its runs that reached the target.
        reached, runs: number of these runs, and of all its runs.
        speedup: the baseline's time over this time, over the seeds with which both reached the target; NaN if there
            are none, or if the baseline is among the first.
        may_be_chance: whether the 95% interval of the relative time includes 1.
    """

    labels: list[str]
    names: list[str]
    setting: str
    time_s: float
    reached: int
    runs: int
    speedup: float
    may_be_chance: bool


def first_to(frame: pd.DataFrame, baseline: str) -> First | None:
    """The groups that reached a target first; None if no group did in half of its runs.

    Args:
        frame: rows of :attr:`ComparisonTables.targets` of one target.
        baseline: the variant that times are relative to.
    """
    first = frame[frame["time_s"] == frame["time_s"].min()]
    if not len(first):
        return None
    # Among ties, the groups that reached it in most runs.
    share = first["reached"] / first["runs"]
    first = first[share == share.max()]
    row = first.iloc[0]
    return First(
        labels=first["label"].tolist(),
        names=_names(first),
        setting=str(row["setting"]),
        time_s=float(row["time_s"]),
        reached=int(row["reached"]),
        runs=int(row["runs"]),
        speedup=math.nan
        if baseline in set(first["label"])
        else float(np.divide(1, row["relative"])),
        may_be_chance=bool(row["relative_low"] < 1 < row["relative_high"]),
    )


@dataclass(frozen=True)
class Lead:
    """The lead of the first groups over the next best variant, in the only setting.

    Attributes:
        second: the next best variant.
        resolution_s: mean time from the evaluation before to the one at which the two reached the target, if the lead
            is shorter; else NaN.
        in_spread: whether the 95% interval of the difference per seed includes 0.
        seeds: number of seeds with which both reached the target.
    """

    second: str
    resolution_s: float
    in_spread: bool
    seeds: int


def lead(comparison: ComparisonTables, target: Target, first: First) -> Lead | None:
    """The lead to a target; None if no other variant reached it."""
    frame = comparison.targets_of(target)
    others = frame[~frame["label"].isin(first.labels) & frame["time_s"].notna()]
    if not len(others):
        return None
    row = others.sort_values("time_s", kind="stable").iloc[0]
    second, two = str(row["label"]), (first.labels[0], str(row["label"]))
    gaps_s = [
        evaluation_gap_s(run, target)
        for group in comparison.groups
        if group.label in two
        for run in group.runs
    ]
    resolution_s = float(np.nanmean(gaps_s))
    pairs = comparison.pairs
    of_two = pairs["first"].isin(two) & pairs["second"].isin(two)
    pair = pairs[of_two & (pairs["quantity"] == f"time to {target}")].iloc[0]
    return Lead(
        second,
        resolution_s if row["time_s"] - first.time_s < resolution_s else math.nan,
        bool(pair["low"] <= 0 <= pair["high"]),
        int(pair["seeds"]),
    )


def winners(comparison: ComparisonTables, target: Target) -> tuple[list[str], int, bool] | None:
    """The variants that were first to a target in most settings; None if none reached it.

    Returns:
        The variants; the number of settings in which each of them was first; whether variants tied in any setting.
    """
    by_setting = comparison.targets_of(target).groupby("setting", sort=False)
    firsts = [first.labels for _, rows in by_setting if (first := first_to(rows, ""))]
    if not firsts:
        return None
    counts = pd.Series([label for labels in firsts for label in labels]).value_counts()
    best = counts.index[counts == counts.max()].tolist()
    return best, int(counts.max()), any(len(labels) > 1 for labels in firsts)


def leader(frame: pd.DataFrame, column: str, written: Callable[[float], str]) -> str:
    """The names of the groups whose value of a column has the text of the largest; empty if all values have it."""
    ahead = frame[frame[column].map(written) == written(frame[column].max())]
    return format_names(_names(ahead)) if len(ahead) < len(frame) or len(frame) == 1 else ""


def most_often_leading(
    frame: pd.DataFrame, column: str, written: Callable[[float], str]
) -> tuple[list[str], int]:
    """The variants that have the largest value of a column, as written, in most settings, and in how many."""
    leaders: list[str] = []
    for _, rows in frame.groupby("setting", sort=False):
        if math.isfinite(best := rows[column].max()):
            leaders += rows["label"][rows[column].map(written) == written(best)].tolist()
    counts = pd.Series(leaders).value_counts(sort=False)
    return counts.index[counts == counts.max()].tolist(), int(counts.max())


def best_at_the_end(comparison: ComparisonTables, metric: str) -> tuple[list[str], float]:
    """The groups with the best mean of the last values of a metric as it is written, and that mean."""
    ends, definition = comparison.summary[f"final_{metric}"], comparison.definition(metric)
    value = definition.best(ends)
    equal = ends.map(definition.format) == definition.format(value)
    return _names(comparison.summary[equal]), value


def main_differences(comparison: ComparisonTables) -> pd.DataFrame:
    """The rows of :attr:`ComparisonTables.pairs` for the targets and the main metrics that have seeds."""
    quantities = [f"time to {target}" for target in comparison.goals]
    quantities += [f"final {name}" for name in comparison.main_metrics]
    frame = comparison.pairs
    return frame[frame["quantity"].isin(quantities) & (frame["seeds"] > 0)]


def fewest_runs(comparison: ComparisonTables) -> int:
    """Runs of the smallest group."""
    return min(len(group.runs) for group in comparison.groups)


def few_for_an_interval(seeds: int) -> bool:
    """Whether there are just enough seeds for an interval, so that it means little."""
    return INTERVAL_RUNS <= seeds <= 5


def our_value(
    comparison: ComparisonTables, table: ReferenceTable, setting: str | None, label: str
) -> float | None:
    """The value of our runs that corresponds to one in a paper's table; None if there are no such runs."""
    if table.quantity in ("final", "best"):
        frame, column = comparison.summary, f"{table.quantity}_{table.metric}"
    else:
        frame = comparison.targets_of(Target.parse(str(table.target)))
        column = "relative" if table.quantity == "relative_time" else table.quantity
    setting = comparison.grouping.settings[0] if setting is None else setting
    rows = frame[(frame["setting"] == setting) & (frame["label"] == label)]
    return float(rows.iloc[0][column]) if len(rows) and column in rows else None


def waiting_share(comparison: ComparisonTables) -> pd.DataFrame:
    """Share of the clients' time spent waiting or idle: ``setting label share``, one row per group."""
    idle = comparison.spent[comparison.spent["part"].isin(["waiting", "idle"])]
    return idle.groupby(["setting", "label"], sort=False)["share"].sum().reset_index()


def curves_document(comparison: ComparisonTables) -> dict[str, Any]:
    """Every metric against every cost, for the chart of curves.

    ``metrics`` and ``against`` list key, label and kind, metrics also whether ``higher`` is better; ``settings`` holds
    by setting, metric and cost the grid ``x`` and per group ``mean``, and ``low`` and ``high`` if it has several runs;
    ``points`` is the approximate maximum number of points per curve, smaller if there are many curves.
    """

    limit = _points(comparison)

    def drawn(setting: str, metric: str, cost: str) -> dict[str, Any]:
        groups = comparison.grouping.of(setting)
        x = grid(groups, metric, cost, limit)
        curves = [curve(group, metric, cost, x) for group in groups]
        return {"x": shortened(x, 7), "groups": [_drawn(values) for values in curves]}

    metrics = [comparison.definition(name) for name in comparison.metrics]
    return {
        "points": limit,
        "metrics": [
            {"key": m.name, "label": m.label, "kind": m.unit, "higher": m.higher_is_better}
            for m in metrics
        ],
        "against": [{"key": k, "label": label, "kind": kind} for k, (label, kind) in COSTS.items()],
        "settings": {
            setting: {
                metric: {cost: drawn(setting, metric, cost) for cost in COSTS}
                for metric in comparison.metrics
            }
            for setting in comparison.grouping.settings
        },
    }


def _points(comparison: ComparisonTables) -> int:
    lists = sum(
        1 + (3 if len(group.runs) > 1 else 1)
        for group in comparison.groups
        for _ in range(len(comparison.metrics) * len(COSTS))
    )
    return max(40, min(400, _MOST_NUMBERS // max(1, lists)))


def _drawn(values: dict[str, Any]) -> dict[str, Any]:
    known = {
        key: list_ for key, list_ in values.items() if key == "mean" or np.isfinite(list_).any()
    }
    return {key: shortened(list_, 5) for key, list_ in known.items()}


def _names(rows: pd.DataFrame) -> list[str]:
    """Variants and, if there are several, their settings."""
    names = zip(rows["label"], rows["setting"], strict=True)
    return [f"{label} in {setting}" if setting else label for label, setting in names]
