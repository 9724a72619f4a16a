"""Findings of a comparison as numbers and names: who was first to a target, by how much, how certainly, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.facts import CLIENT_UPDATES
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.tables import ComparisonTables, at_target, per_hour
from fedsim.analysis.comparison.targets import INTERVAL_RUNS, Target, evaluation_gap_s
from fedsim.vocabulary.formatting import format_duration, format_names


class Cause(NamedTuple):
    """Why one variant reached a target sooner than another, over the seeds with which both reached it.

    A mean time is the mean number of client updates divided by the rate at which they were aggregated, so the factor
    between the times is the product of two factors: ``speedup = rate_ratio / updates_ratio``. Times, updates and rates
    are those of the first and of the second variant.
    """

    setting: str
    first: str
    second: str
    seeds: int
    times_s: tuple[float, float]
    updates: tuple[float, float]

    @property
    def rates_per_h(self) -> tuple[float, float]:
        """Client updates per hour until the target."""
        first, second = map(per_hour, self.updates, self.times_s)
        return first, second

    @property
    def speedup(self) -> float:
        """Time of the second over that of the first."""
        return self.times_s[1] / self.times_s[0]

    @property
    def updates_ratio(self) -> float:
        """Client updates of the first over those of the second."""
        return self.updates[0] / self.updates[1]

    @property
    def rate_ratio(self) -> float:
        """Rate of the first over that of the second."""
        return self.rates_per_h[0] / self.rates_per_h[1]


class Race(NamedTuple):
    """The first variants to a target in a setting.

    Attributes:
        setting: the setting.
        labels: the first variants, several if they tie.
        time_s: mean time of the first of them over its runs that reached the target.
        reached, runs: number of these runs, and of all its runs.
        same_means: whether variants that tie have the same mean over the same number of runs.
        quickest: if the variant with the shortest mean is not first, because another one was faster on the seeds with
            which both reached the target, its label.
        rival: the variant over which the lead may mean nothing; empty if the lead is clear.
        doubt: why it may mean nothing, as a clause.
        cause: the comparison with the partner: the baseline, or the next best variant if the baseline is among the
            first or did not reach the target; None without a partner, or without a common seed.
    """

    setting: str
    labels: list[str]
    time_s: float
    reached: int
    runs: int
    same_means: bool
    quickest: str
    rival: str
    doubt: str
    cause: Cause | None

    @property
    def names(self) -> list[str]:
        """The first variants with their setting, if there are several."""
        return [f"{label} ({self.setting})" if self.setting else label for label in self.labels]


def races(comparison: ComparisonTables, target: Target) -> list[Race]:
    """The race to a target in each setting in which a variant reached it in at least half of its runs."""
    frame = comparison.targets_of(target)
    frame = frame[frame["time_s"].notna()]
    by_setting = frame.groupby("setting", sort=False)
    return [_race(comparison, target, str(setting), rows) for setting, rows in by_setting]


def _race(comparison: ComparisonTables, target: Target, setting: str, rows: pd.DataFrame) -> Race:
    """Two variants are compared over the seeds with which both reached the target, or by their means without such a
    seed. Of those that no other one beats, the one with the shortest mean is first; of all, if every one is beaten."""
    rows = rows.assign(missed=1 - rows["reached"] / rows["runs"]).set_index("label")
    shown = rows.index.tolist()
    rows = rows.sort_values(["time_s", "missed"], kind="stable")
    pairs = comparison.pairs
    pairs = pairs[(pairs["setting"] == setting) & (pairs["quantity"] == f"time to {target}")]
    by_pair = {(row["first"], row["second"]): row for row in pairs.to_dict("records")}

    def ahead_s(label: str, other: str) -> float:
        pair = by_pair.get((label, other)) or by_pair[other, label]
        if not pair["seeds"]:
            return float(rows["time_s"][other] - rows["time_s"][label])
        seconds = -pair["difference"] if pair["first"] == label else pair["difference"]
        return 0.0 if abs(seconds) <= 1e-9 * rows["time_s"][label] else float(seconds)

    beaten_by = {
        label: [other for other in rows.index if other != label and ahead_s(other, label) > 0]
        for label in rows.index
    }
    unbeaten = [label for label in rows.index if not beaten_by[label]] or rows.index.tolist()
    first = unbeaten[0]
    tied = [label for label in unbeaten if label == first or ahead_s(first, label) == 0]
    labels = [label for label in shown if label in tied]
    others = [label for label in rows.index if label not in labels]
    partner = comparison.baseline if comparison.baseline in others else next(iter(others), None)
    rivals = dict.fromkeys([*beaten_by[first], *others[:1], *([partner] if partner else [])])
    doubts = (
        (other, _doubt(comparison, target, (first, other), ahead_s(first, other), by_pair))
        for other in rivals
    )
    rival, doubt = next(((other, reason) for other, reason in doubts if reason), ("", ""))
    means = rows.loc[labels, ["time_s", "reached", "runs"]]
    return Race(
        setting,
        labels,
        float(rows["time_s"][first]),
        int(rows["reached"][first]),
        int(rows["runs"][first]),
        bool(np.isclose(means, means.iloc[0], rtol=1e-9).all()),
        "" if rows.index[0] in unbeaten else str(rows.index[0]),
        rival,
        doubt,
        None if partner is None else _cause(comparison, target, setting, (first, partner)),
    )


def _doubt(
    comparison: ComparisonTables,
    target: Target,
    two: tuple[str, str],
    ahead_s: float,
    by_pair: Mapping[tuple[str, str], Mapping[Any, Any]],
) -> str:
    """Why the lead of a variant over another may mean nothing: the first rule that applies; empty if none does."""
    pair = by_pair.get(two) or by_pair[two[1], two[0]]
    seeds = int(pair["seeds"])
    groups = [g for g in comparison.grouping.of(str(pair["setting"])) if g.label in two]
    gaps_s = [evaluation_gap_s(run, target) for group in groups for run in group.runs]
    known_s = [gap_s for gap_s in gaps_s if math.isfinite(gap_s)]
    resolution_s = float(np.mean(known_s)) if known_s else 0.0
    on_seeds = "on the seeds with which both reached it"
    rules = (
        (ahead_s < 0, f"{two[1]} was faster {on_seeds}"),
        (ahead_s == 0, f"both were equally fast {on_seeds}"),
        (
            ahead_s < resolution_s,
            f"it is shorter than the time between evaluations ({format_duration(resolution_s)})",
        ),
        (pair["low"] <= 0 <= pair["high"], "it is within the spread over seeds"),
        (seeds == 0, "the two share no seed"),
        (seeds == 1, "it rests on one seed"),
        (seeds < INTERVAL_RUNS, f"it rests on {seeds} seeds"),
    )
    return next((reason for applies, reason in rules if applies), "")


def _cause(
    comparison: ComparisonTables, target: Target, setting: str, two: tuple[str, str]
) -> Cause | None:
    groups = {group.label: group for group in comparison.grouping.of(setting)}
    pair = groups[two[0]], groups[two[1]]
    times_s, updates = (at_target(*pair, target, cost) for cost in ("time_s", CLIENT_UPDATES))
    both = np.isfinite(times_s).all(axis=0)
    if not both.any():
        return None
    (first_s, second_s), (first, second) = (
        values[:, both].mean(axis=1).tolist() for values in (times_s, updates)
    )
    if not min(first_s, second_s) > 0:
        return None
    return Cause(setting, *two, int(both.sum()), (first_s, second_s), (first, second))


def causes(comparison: ComparisonTables, target: Target) -> list[Cause]:
    """The causes of clear leads to a target: none for ties, uncertain leads, runs that had stopped before, and if an
    untrained model reached the target."""
    if comparison.stopped_before(target):
        return []
    clear = (race for race in races(comparison, target) if len(race.labels) == 1 and not race.doubt)
    every = (race.cause for race in clear)
    return [cause for cause in every if cause is not None and min(cause.updates) > 0]


def most_often(every: list[list[str]]) -> tuple[list[str], int]:
    """The variants in most of several lists, and in how many."""
    counts = pd.Series([label for labels in every for label in labels]).value_counts(sort=False)
    return counts.index[counts == counts.max()].tolist(), int(counts.max())


def leaders(
    frame: pd.DataFrame, column: str, written: Callable[[float], str]
) -> tuple[list[str], float]:
    """The groups whose value of a column has the text of the largest, and that value; none if it is not finite."""
    best = float(frame[column].max())
    ahead = frame[(frame[column].map(written) == written(best)) & math.isfinite(best)]
    several = zip(ahead["label"], ahead["setting"], strict=True)
    return [f"{label} ({setting})" if setting else label for label, setting in several], best


def leader(frame: pd.DataFrame, column: str, written: Callable[[float], str]) -> str:
    """The names of :func:`leaders`; empty if all of several groups are among them."""
    names, _ = leaders(frame, column, written)
    return format_names(names) if len(names) < len(frame) or len(frame) == 1 else ""


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
