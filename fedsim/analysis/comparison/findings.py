"""Findings of a comparison, as numbers and names: the first and the best groups, and the comparison with a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.curves import curve, grid
from fedsim.analysis.comparison.facts import CLIENT_UPDATES, COSTS, Replicate
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.tables import ComparisonTables, at_target, per_hour
from fedsim.analysis.comparison.targets import INTERVAL_RUNS, Target, evaluation_gap_s, reaching
from fedsim.analysis.figures.base import shortened
from fedsim.vocabulary.formatting import format_names

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
        shared: if groups tie without having the same mean over the same number of runs, the number of seeds with which
            all of them reached the target, and the mean time over these seeds.
        faster: if another group has a shorter mean time, its name and the name of one that was faster over the seeds
            with which both reached the target.
        behind: if every group is beaten by another one, the labels of those that beat the first one.
    """

    labels: list[str]
    names: list[str]
    setting: str
    time_s: float
    reached: int
    runs: int
    shared: tuple[int, float] | None = None
    faster: tuple[str, str] | None = None
    behind: tuple[str, ...] = ()


def first_to(
    comparison: ComparisonTables, target: Target, setting: str | None = None
) -> First | None:
    """The groups that reached a target first; None if no group did in half of its runs.

    Two groups are compared over the seeds with which both reached the target, or by their means if there is no such
    seed. Of the groups that no other one beats, the one with the shortest mean time is first, with those that tie with
    it. If every group is beaten, the mean times decide.

    Args:
        comparison: the comparison.
        target: the target.
        setting: the setting of the groups; all settings if None.
    """
    frame = comparison.targets_of(target).reset_index(drop=True)
    frame = frame[frame["time_s"].notna() & ((setting is None) | (frame["setting"] == setting))]
    if not len(frame):
        return None
    frame = frame.assign(missed=1 - frame["reached"] / frame["runs"])
    frame = frame.sort_values(["time_s", "missed"], kind="stable")
    names = dict(zip(frame.index, _names(frame), strict=True))
    # The rows are in the order of the groups.
    times_s = {row: _times_s(comparison.groups[row], target) for row in frame.index}
    faster = {
        row: [other for other in times_s if _beats(times_s[other], times_s[row])] for row in times_s
    }
    unbeaten = [row for row in times_s if not faster[row]] or list(times_s)
    tied, shared = unbeaten[:1], None
    for row in unbeaten[1:]:
        means_s = _shared_means_s([times_s[each] for each in (*tied, row)])
        if all(_same(means_s[0], mean_s) for mean_s in means_s):
            tied.append(row)
    rows = frame.loc[tied]
    row, quickest = rows.iloc[0], frame.index[0]
    alike = rows[["reached", "runs"]].drop_duplicates().shape[0] == 1
    alike = alike and all(_same(row["time_s"], time_s) for time_s in rows["time_s"])
    each_s = [times_s[each] for each in tied]
    if not alike and (seeds := len(_shared(each_s))):
        shared = seeds, _shared_means_s(each_s)[0]
    overtaken = quickest not in unbeaten
    return First(
        labels=rows.sort_index()["label"].tolist(),
        names=_names(rows.sort_index()),
        setting=str(row["setting"]),
        time_s=float(row["time_s"]),
        reached=int(row["reached"]),
        runs=int(row["runs"]),
        shared=shared,
        faster=(names[quickest], names[faster[quickest][0]]) if overtaken else None,
        behind=tuple(frame.loc[faster[tied[0]], "label"]),
    )


def _times_s(group: Group, target: Target) -> dict[Replicate, float]:
    """The times of the runs of a group that reached a target, by seed."""
    times_s = {run.replicate: reaching(run, target)["time_s"] for run in group.runs}
    return {seed: time_s for seed, time_s in times_s.items() if math.isfinite(time_s)}


def _shared(times_s: Sequence[Mapping[Replicate, float]]) -> list[Replicate]:
    """The seeds with which all of several groups reached a target."""
    return [seed for seed in times_s[0] if all(seed in times for times in times_s)]


def _shared_means_s(times_s: Sequence[Mapping[Replicate, float]]) -> list[float]:
    """The mean time of each group over the seeds that all share, or over all of its own if there are none."""
    seeds = _shared(times_s)
    return [float(np.mean([times[seed] for seed in seeds or times])) for times in times_s]


def _beats(times_s: Mapping[Replicate, float], others_s: Mapping[Replicate, float]) -> bool:
    """Whether a group was faster than another one."""
    mean_s, other_s = _shared_means_s([times_s, others_s])
    return mean_s < other_s and not _same(mean_s, other_s)


def _same(time_s: float, other_s: float) -> bool:
    """Whether two means are equal, up to the rounding of sums."""
    return math.isclose(time_s, other_s, rel_tol=1e-9)


@dataclass(frozen=True)
class Lead:
    """The lead of the first group to a target over another one of its setting.

    Attributes:
        label: the first group's variant; of several that tie, the first one.
        other: the other variant.
        resolution_s: mean time from the evaluation before to the one at which the two reached the target, if the lead
            over the seeds with which both reached it is shorter; else NaN.
        in_spread: whether the 95% interval of the difference per seed includes 0.
        seeds: number of seeds with which both reached the target.
        ahead_s: how much earlier the first one reached it on average over these seeds; NaN without any.
    """

    label: str
    other: str
    resolution_s: float
    in_spread: bool
    seeds: int
    ahead_s: float

    @property
    def uncertain(self) -> bool:
        """Whether the lead may mean nothing."""
        too_short = math.isfinite(self.resolution_s)
        return self.ahead_s <= 0 or too_short or self.in_spread or self.seeds < INTERVAL_RUNS


@dataclass(frozen=True)
class Race:
    """The first group to a target in a setting, and those that it is compared with.

    Attributes:
        first: the first groups.
        partner: the variant that a factor compares them with: the baseline, or the next best variant if the baseline is
            among the first or did not reach the target; None if no other variant reached it.
        leads: the leads over those that beat the first group, if every group is beaten, over the next best variant, and
            over the partner; each variant once.
    """

    first: First
    partner: str | None
    leads: tuple[Lead, ...]


def race_to(comparison: ComparisonTables, target: Target, setting: str) -> Race | None:
    """The race to a target in a setting; None if no variant reached the target there."""
    first = first_to(comparison, target, setting)
    if first is None:
        return None
    frame = comparison.targets_of(target)
    frame = frame[frame["setting"] == setting]
    others = frame[~frame["label"].isin(first.labels) & frame["time_s"].notna()]
    labels = others.sort_values("time_s", kind="stable")["label"].tolist()
    if not labels:
        return Race(first, None, ())
    partner = comparison.baseline if comparison.baseline in labels else labels[0]
    rivals = dict.fromkeys([*first.behind, labels[0], partner])
    times_s = others.set_index("label")["time_s"]
    leads = (_lead(comparison, target, first, other, times_s[other]) for other in rivals)
    return Race(first, partner, tuple(leads))


def _lead(
    comparison: ComparisonTables, target: Target, first: First, other: str, time_s: float
) -> Lead:
    two = (first.labels[0], other)
    gaps_s = [
        gap_s
        for group in comparison.grouping.of(first.setting)
        if group.label in two
        for run in group.runs
        if math.isfinite(gap_s := evaluation_gap_s(run, target))
    ]
    resolution_s = float(np.mean(gaps_s)) if gaps_s else math.nan
    pairs = comparison.pairs[comparison.pairs["setting"] == first.setting]
    of_two = pairs["first"].isin(two) & pairs["second"].isin(two)
    pair = pairs[of_two & (pairs["quantity"] == f"time to {target}")].iloc[0]
    ahead_s = -pair["difference"] if pair["first"] == two[0] else pair["difference"]
    lead_s = ahead_s if pair["seeds"] else time_s - first.time_s
    return Lead(
        *two,
        resolution_s if lead_s < resolution_s else math.nan,
        bool(pair["low"] <= 0 <= pair["high"]),
        int(pair["seeds"]),
        float(ahead_s),
    )


@dataclass(frozen=True)
class Cause:
    """Why one variant reached a target sooner than another, over the seeds with which both reached it.

    A mean time is the mean number of client updates divided by the rate at which they were aggregated, which is the
    ratio of the two means. The factor between the times is thus the product of two factors::

        speedup = rate_ratio / updates_ratio

    Attributes:
        setting: their setting.
        first, second: the faster and the slower variant.
        seeds: number of the seeds.
        times_s: mean times to the target of first and second.
        updates: mean numbers of client updates that they had aggregated by then.
    """

    setting: str
    first: str
    second: str
    seeds: int
    times_s: tuple[float, float]
    updates: tuple[float, float]

    @property
    def rates_per_h(self) -> tuple[float, float]:
        """Client updates per hour until the target, of first and second."""
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
        first, second = self.rates_per_h
        return first / second


def cause(comparison: ComparisonTables, target: Target, race: Race) -> Cause | None:
    """The comparison of the first variant with its partner.

    None if there is no partner or no common seed, or if one of them reached the target before time passed.
    """
    groups = {group.label: group for group in comparison.grouping.of(race.first.setting)}
    if race.partner is None:
        return None
    pair = groups[race.first.labels[0]], groups[race.partner]
    times_s, updates = (at_target(*pair, target, cost) for cost in ("time_s", CLIENT_UPDATES))
    both = np.isfinite(times_s).all(axis=0)
    if not both.any():
        return None
    (first_s, second_s), (first, second) = (
        values[:, both].mean(axis=1).tolist() for values in (times_s, updates)
    )
    if not min(first_s, second_s) > 0:
        return None
    labels = race.first.labels[0], race.partner
    return Cause(race.first.setting, *labels, int(both.sum()), (first_s, second_s), (first, second))


def causes(comparison: ComparisonTables, target: Target) -> list[Cause]:
    """The causes of clear leads to a target, one per setting at most.

    A setting is left out if variants tie, if the lead is uncertain, if the times do not rank the variants, or if a
    model without an update reached the target.
    """
    if comparison.stopped_before(target):
        return []
    races = (race_to(comparison, target, setting) for setting in comparison.grouping.settings)
    clear = (
        race
        for race in races
        if race is not None
        and len(race.first.labels) == 1
        and not any(lead.uncertain for lead in race.leads)
    )
    every = (cause(comparison, target, race) for race in clear)
    return [each for each in every if each is not None and min(each.updates) > 0]


def winners(comparison: ComparisonTables, target: Target) -> tuple[list[str], int, bool] | None:
    """The variants that were first to a target in most settings; None if none reached it.

    Returns:
        The variants; the number of settings in which each of them was first; whether variants tied in any setting.
    """
    firsts = [
        first.labels
        for setting in comparison.grouping.settings
        if (first := first_to(comparison, target, setting))
    ]
    if not firsts:
        return None
    counts = pd.Series([label for labels in firsts for label in labels]).value_counts()
    best = counts.index[counts == counts.max()].tolist()
    return best, int(counts.max()), any(len(labels) > 1 for labels in firsts)


def leader(frame: pd.DataFrame, column: str, written: Callable[[float], str]) -> str:
    """The names of the groups whose value of a column has the text of the largest; empty if all values have it."""
    ahead = frame[frame[column].map(written) == written(frame[column].max())]
    return format_names(_names(ahead)) if len(ahead) < len(frame) or len(frame) == 1 else ""


def equal_everywhere(frame: pd.DataFrame, column: str, written: Callable[[float], str]) -> bool:
    """Whether all variants of each setting have the same value of a column, as written."""
    texts = frame[column].map(written)
    return bool((texts.groupby(frame["setting"]).nunique() == 1).all())


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
    return [f"{label} ({setting})" if setting else label for label, setting in names]
