"""Findings of a comparison as numbers and names: who was ahead, by how much, how certainly, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.facts import CLIENT_UPDATES, RunFacts
from fedsim.analysis.comparison.groups import listed
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import FEW, INTERVAL_RUNS, Target, evaluation_gap_s
from fedsim.vocabulary.formatting import format_counted, format_duration


def why_uncertain(
    pair: pd.Series[Any], label: str, ahead_s: float, gap_s: float, times_s: pd.DataFrame
) -> str:
    """The first reason why the lead over a rival may mean nothing; empty if it is clear.

    A lead is doubtful if the rival is not slower on the seeds with which both reached the target (every variant is
    beaten by another one, because some runs missed it); if it, ``ahead_s``, is shorter than ``gap_s``, the mean time
    from the evaluation before to the one that reached the target; if the 95% interval of the difference per seed, in
    the row ``pair`` of the pairs, includes zero; if there are too few common seeds for an interval; or if the ranges
    of up to :data:`FEW` seeds overlap. ``times_s`` has a column for the first variant and one for the rival.
    """
    if ahead_s <= 0:
        how = "equally fast" if ahead_s == 0 else "faster"
        return f"{label} was {how} on the seeds with which both reached it"
    if ahead_s < gap_s:
        return f"the lead is shorter than the time between evaluations ({format_duration(gap_s)})"
    if pair["low"] <= 0 <= pair["high"]:
        return "the lead is within the spread over seeds"
    if pair["seeds"] < INTERVAL_RUNS:
        return (
            f"{'only' if pair['seeds'] else 'with'} {format_counted(pair['seeds'], 'common seed')}"
        )
    if pair["seeds"] <= FEW and times_s.iloc[:, 0].max() >= times_s.iloc[:, 1].min():
        return "the ranges of their times overlap"
    return ""


class Lead(NamedTuple):
    """The first variants to a target in a setting, and the first of them beside a partner.

    Attributes:
        setting, first: the setting and the first variant in it.
        second: its partner: the baseline, or the next best variant if the baseline is among the first or did not reach
            the target; empty if there is none.
        seeds: number of seeds with which both reached the target; the numbers below are means over these.
        speedup: time of the second over that of the first; ``rate_ratio / updates_ratio``.
        slowest, fastest: the least and the largest speedup of a seed; NaN without seeds.
        updates_ratio, rate_ratio: client updates of the first, and these per hour, over those of the second.
        client_updates, client_updates_per_h: those of the first and of the second.
        tied: the variants that are first, several if they tie.
        quickest: the variant with the shortest mean time.
        doubts: the other variants over which the lead may mean nothing, and why.
    """

    setting: str
    first: str
    second: str
    seeds: int
    speedup: float
    slowest: float
    fastest: float
    updates_ratio: float
    rate_ratio: float
    client_updates: list[float]
    client_updates_per_h: list[float]
    tied: list[str]
    quickest: str
    doubts: dict[str, str]

    @property
    def has_cause(self) -> bool:
        """Whether the lead is clear, and no untrained model reached the target."""
        is_clear = self.second and self.seeds and len(self.tied) == 1 and not self.doubts
        return bool(is_clear) and min(self.client_updates) > 0


def leads(comparison: ComparisonTables, target: Target) -> list[Lead]:
    """The lead in each setting in which a variant reached a target; none if runs had stopped at another one.

    Two variants are compared over the seeds with which both reached the target, or by their means without such a seed.
    Of those that no other one beats, the one with the shortest mean is first; of all, if every one is beaten.
    """
    if target not in comparison.leads:
        frame = comparison.targets_of(target).dropna(subset="time_s").groupby("setting", sort=False)
        comparison.leads[target] = [
            _lead(comparison, target, str(setting), rows)
            for setting, rows in frame
            if not comparison.stopped_before(target)
        ]
    return comparison.leads[target]


def _lead(comparison: ComparisonTables, target: Target, setting: str, rows: pd.DataFrame) -> Lead:
    rows = rows.sort_values("time_s", kind="stable")
    order, means_s, pairs = rows["label"].to_numpy(str), rows["time_s"].to_numpy(), comparison.pairs
    pairs = pairs[(pairs["setting"] == setting) & (pairs["quantity"] == f"time to {target}")]
    by_pair = pairs.pivot(index="first", columns="second", values="difference")
    later_s = by_pair.reindex(index=order, columns=order).to_numpy()
    # By how much the variant of a row is ahead of that of a column.
    ahead_s = np.where(np.isnan(later_s), later_s.T, -later_s)
    ahead_s = np.where(np.isnan(ahead_s), means_s - means_s[:, None], ahead_s)
    ahead_s[np.abs(ahead_s) <= 1e-9 * means_s[:, None]] = 0.0
    unbeaten = (ahead_s >= 0).all(axis=1)
    winner = int(unbeaten.argmax())
    tied = unbeaten & (ahead_s[winner] == 0)
    tied[winner] = True
    first, others = str(order[winner]), order[~tied].tolist()
    second = comparison.baseline if comparison.baseline in others else next(iter(others), "")
    groups = {group.label: group for group in comparison.grouping.of(setting)}
    doubts = dict[str, str]()
    times = comparison.at(setting, target)
    rivals = [*order[ahead_s[winner] < 0].tolist(), *others[:1], *filter(None, [second]), *others]
    for label in dict.fromkeys(rivals):
        pair = pairs[pairs[["first", "second"]].isin([first, label]).all(axis=1)].iloc[0]
        runs = (*groups[first].runs, *groups[label].runs)
        gap_s = pd.Series([evaluation_gap_s(run, target) for run in runs]).mean()
        by_s = float(ahead_s[winner, order == label][0])
        if reason := why_uncertain(pair, label, by_s, gap_s, times[[first, label]].dropna()):
            doubts[label] = reason
    two = [first, second or first]
    times_s = comparison.at(setting, target)[two].dropna()
    updates = comparison.at(setting, target, CLIENT_UPDATES).loc[times_s.index, two]
    means = pd.DataFrame({"time_s": [*times_s.mean()], CLIENT_UPDATES: [*updates.mean()]})
    means["per_h"] = means[CLIENT_UPDATES] / means["time_s"] * 3600
    speedups = times_s.iloc[:, 1] / times_s.iloc[:, 0]
    ratios, inverse = means.iloc[0] / means.iloc[1], means.iloc[1] / means.iloc[0]
    return Lead(
        setting,
        first,
        second,
        seeds=len(times_s),
        speedup=float(inverse["time_s"]),
        slowest=float(speedups.min()),
        fastest=float(speedups.max()),
        updates_ratio=float(ratios[CLIENT_UPDATES]),
        rate_ratio=float(ratios["per_h"]),
        client_updates=means[CLIENT_UPDATES].tolist(),
        client_updates_per_h=means["per_h"].tolist(),
        tied=order[tied].tolist(),
        quickest=str(order[0]),
        doubts=doubts,
    )


def losses_of(runs: Sequence[RunFacts]) -> dict[str, float]:
    """Shares of a variant's resources that went into nothing, means over runs; without those that are unknown.

    ``idle`` and ``waiting`` (from the arrival of an update to its aggregation) are shares of the clients' time,
    ``lost`` is the share of the local steps.
    """
    spent = pd.DataFrame([run.spent_s for run in runs])
    shares = spent.reindex(columns=["idle", "waiting"]).div(spent.sum(axis=1), axis=0)
    shares["lost"] = [run.figures.get("lost_steps", np.nan) for run in runs]
    return {str(name): float(mean) for name, mean in shares.mean().dropna().items()}


def waits_of(runs: Sequence[RunFacts]) -> pd.Series[float]:
    """Shares of the critical paths of runs by cause, the largest first."""
    seconds = pd.DataFrame([run.waits_s for run in runs]).sum().sort_values(ascending=False)
    return seconds / seconds.sum()


def ahead(
    frame: pd.DataFrame, column: str, written: Callable[[float], str], *, higher: bool = True
) -> str:
    """The variants with the best value of a column: ``90.0% with fedavg``; of several settings, those that are best in
    most: ``fedavg in 2 of 3 settings``. Variants whose values have the same text tie."""
    best = frame.groupby("setting")[column].transform("max" if higher else "min")
    first = frame[(frame[column].map(written) == best.map(written)) & np.isfinite(frame[column])]
    settings = frame["setting"].nunique()
    if first.empty:
        return "none"
    if settings > 1:
        return most_often(first["label"], settings)
    everyone = len(first) == len(frame) > 1
    names = "all variants" if everyone else listed(first["label"].tolist())
    return f"{written(best.iloc[0])} with {names}"


def most_often(labels: Iterable[str], settings: int) -> str:
    """The labels that appear most often, and how often: ``fedavg in 2 of 3 settings``."""
    counts = Counter(labels)
    most = max(counts.values())
    names = [label for label, count in counts.items() if count == most]
    return f"{listed(names)} in {most} of {settings} settings"
