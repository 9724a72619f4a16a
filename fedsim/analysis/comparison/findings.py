"""Findings of a comparison, as numbers and names: which groups were first, which are best, how a paper compares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.curves import curves
from fedsim.analysis.comparison.facts import COSTS
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import INTERVAL_RUNS, Target


@dataclass(frozen=True)
class First:
    """The groups that reached a target first; several if they tie.

    Attributes:
        labels: of the first groups, in their order.
        names: the same with their settings, if there are several.
        setting: of the first of them.
        time_s: mean time of those of its runs that reached the target.
        reached, runs: how many did, and of how many.
        groups: number of groups.
        missed: groups of which fewer than half of the runs reached the target.
        speedup: the baseline's time over this time; NaN if the baseline has none or is among the first.
    """

    labels: list[str]
    names: list[str]
    setting: str
    time_s: float
    reached: int
    runs: int
    groups: int
    missed: int
    speedup: float


def first_to(frame: pd.DataFrame, baseline: str) -> First | None:
    """The groups that reached a target first; None if no group did in half of its runs.

    Args:
        frame: rows of :attr:`ComparisonTables.targets` of one target.
        baseline: the variant that times are relative to.
    """
    known = frame.dropna(subset="time_s")
    if not len(known):
        return None
    first = known[known["time_s"] == known["time_s"].min()]
    # Among ties, the groups that reached it in most runs.
    share = first["reached"] / first["runs"]
    first = first[share == share.max()]
    row = first.iloc[0]
    base_s = known["time_s"][known["label"] == baseline]
    behind = len(base_s) > 0 and baseline not in set(first["label"])
    return First(
        labels=first["label"].tolist(),
        names=[_named(row) for _, row in first.iterrows()],
        setting=str(row["setting"]),
        time_s=float(row["time_s"]),
        reached=int(row["reached"]),
        runs=int(row["runs"]),
        groups=len(frame),
        missed=len(frame) - len(known),
        speedup=float(np.divide(base_s.iloc[0], row["time_s"])) if behind else math.nan,
    )


@dataclass(frozen=True)
class Winners:
    """The variants that were first to a target in most settings.

    Attributes:
        labels: the variants; several if they were first equally often.
        settings: number of settings in which each of them was first.
        tied: whether several variants tied in a setting.
    """

    labels: list[str]
    settings: int
    tied: bool


def winners(comparison: ComparisonTables, target: Target) -> Winners | None:
    """The variants that were first to a target in most settings; None if none reached it."""
    frame = comparison.targets_of(target)
    settings = [first_to(rows, "") for _, rows in frame.groupby("setting", sort=False)]
    firsts = [first.labels for first in settings if first is not None]
    if not firsts:
        return None
    counts = pd.Series([label for labels in firsts for label in labels]).value_counts()
    most = int(counts.iloc[0])
    best = [str(label) for label in counts[counts == most].index]
    return Winners(best, most, any(len(labels) > 1 for labels in firsts))


def leader(frame: pd.DataFrame, column: str, written: Callable[[float], str]) -> str:
    """The name of the group with the largest value of a column; empty if all values have the same text."""
    if frame[column].map(written).nunique() == 1 < len(frame):
        return ""
    return _named(frame.iloc[int(np.nanargmax(frame[column]))])


@dataclass(frozen=True)
class Best:
    """The groups that ended best in a metric.

    Attributes:
        names: the groups with the best mean of the last values.
        value: that mean; NaN if the metric was not measured.
        all_equal: whether there are several groups and all have this value.
    """

    names: list[str]
    value: float
    all_equal: bool


def best_at_the_end(comparison: ComparisonTables, metric: str) -> Best:
    """The groups that ended best in a metric."""
    ends = comparison.summary[f"final_{metric}"]
    value = comparison.definition(metric).best(ends)
    names = [_named(row) for _, row in comparison.summary[ends == value].iterrows()]
    return Best(names, value, len(names) == len(ends) > 1)


@dataclass(frozen=True)
class Differences:
    """The differences between variants, and how many are clear.

    Attributes:
        rows: those of :attr:`ComparisonTables.pairs` for the targets and main metrics that have seeds.
        clear: number of rows whose interval excludes zero.
        fewest_seeds: the smallest number of seeds in a row.
        have_intervals: whether any row has enough seeds for an interval.
    """

    rows: pd.DataFrame
    clear: int
    fewest_seeds: int
    have_intervals: bool


def clear_differences(comparison: ComparisonTables) -> Differences | None:
    """Differences in the targets and the main metrics; None if no two variants share a seed."""
    quantities = [f"time to {target}" for target in comparison.goals]
    quantities += [f"final {name}" for name in comparison.main_metrics]
    frame = comparison.pairs
    frame = frame[frame["quantity"].isin(quantities) & (frame["seeds"] > 0)]
    if not len(frame):
        return None
    clear = int(((frame["low"] > 0) | (frame["high"] < 0)).sum())
    fewest = int(frame["seeds"].min())
    return Differences(frame, clear, fewest, bool(frame["low"].notna().any()))


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

    ``metrics`` and ``against`` list key, label and kind; ``settings`` holds by setting, metric and cost the grid
    ``x`` and per group ``mean``, ``low`` and ``high``.
    """
    settings: dict[str, Any] = {}
    for setting in comparison.grouping.settings:
        settings[setting] = {
            metric: {cost: _curves(comparison, setting, metric, cost) for cost in COSTS}
            for metric in comparison.metrics
        }
    metrics = [comparison.definition(name) for name in comparison.metrics]
    return {
        "metrics": [{"key": m.name, "label": m.label, "kind": m.unit} for m in metrics],
        "against": [{"key": k, "label": label, "kind": kind} for k, (label, kind) in COSTS.items()],
        "settings": settings,
    }


def _curves(
    comparison: ComparisonTables, setting: str, metric: str, against: str
) -> dict[str, Any]:
    x, drawn = curves(comparison.grouping.of(setting), metric, against)
    groups = [{"mean": each.mean, "low": each.low, "high": each.high} for each in drawn]
    return {"x": x, "groups": groups}


def _named(row: pd.Series[Any]) -> str:
    """A variant and, if there are several, its setting."""
    return f"{row['label']} in {row['setting']}" if row["setting"] else str(row["label"])
