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
from fedsim.analysis.comparison.targets import (
    FEW,
    INTERVAL_RUNS,
    Target,
    evaluation_gap_s,
    mean_of_reached,
)
from fedsim.vocabulary.formatting import NAMED


def why_uncertain(
    pair: pd.Series[Any], label: str, ahead_s: float, gap_s: float, times_s: pd.DataFrame
) -> str:
    """The first reason why the lead over a rival may mean nothing; empty if it is clear.

    A lead is doubtful if the rival is not slower on the seeds with which both reached the target (every variant is
    beaten by another one, because some runs missed it); if it, ``ahead_s``, is shorter than ``gap_s``, the mean time
    from the evaluation before to the one that reached the target; if the ranges of up to :data:`FEW` seeds overlap; if
    the 95% interval of the difference per seed, in the row ``pair`` of the pairs, includes zero; or if there are too
    few common seeds for an interval. ``times_s`` has a column for the first variant and one for the rival.
    """
    if ahead_s <= 0:
        how = "equally fast" if ahead_s == 0 else "faster"
        return f"{label} was {how} on the seeds with which both reached it"
    if ahead_s < gap_s:
        return "the lead is shorter than the time between evaluations"
    if pair["seeds"] <= FEW and times_s.iloc[:, 0].max() >= times_s.iloc[:, 1].min():
        return "the ranges of their times overlap"
    if pair["low"] <= 0 <= pair["high"]:
        return "the lead is within the spread over seeds"
    return TOO_FEW if pair["seeds"] < INTERVAL_RUNS else ""


TOO_FEW = f"fewer than {INTERVAL_RUNS} common seeds"
"""The only reason against a lead over a variant that is slower in all that was seen."""


class Lead(NamedTuple):
    """The first variants to a target in a setting, and the first of them beside a partner.

    Attributes:
        setting, first: the setting and the first variant in it.
        second: its partner: the baseline, or the next best variant if the baseline is among the first or did not reach
            the target; empty if there is none.
        seeds: number of seeds with which both reached the target; the numbers below are means over these.
        speedup, low, high: :meth:`ComparisonTables.speed` of the first relative to the second, which is
            ``rate_ratio / updates_ratio``; NaN without seeds.
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
    low: float
    high: float
    updates_ratio: float
    rate_ratio: float
    client_updates: list[float]
    client_updates_per_h: list[float]
    tied: list[str]
    quickest: str
    doubts: dict[str, str]

    @property
    def close(self) -> list[str]:
        """The variants of :attr:`doubts` that may be as fast; without one, those with too few seeds."""
        few = [label for label, why in self.doubts.items() if why == TOO_FEW]
        return [label for label in self.doubts if label not in few] or few

    @property
    def why(self) -> str:
        """The reasons of the :attr:`close` variants."""
        return " or ".join(dict.fromkeys(self.doubts[label] for label in self.close))

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
    speed = comparison.speed(setting, target, *two)
    times_s = comparison.at(setting, target)[two].dropna()
    updates = comparison.at(setting, target, CLIENT_UPDATES).loc[times_s.index, two]
    means = pd.DataFrame({"time_s": [*times_s.mean()], CLIENT_UPDATES: [*updates.mean()]})
    means["per_h"] = means[CLIENT_UPDATES] / means["time_s"] * 3600
    ratios = means.iloc[0] / means.iloc[1]
    return Lead(
        setting,
        first,
        second,
        seeds=len(times_s),
        speedup=speed.mean,
        low=speed.low,
        high=speed.high,
        updates_ratio=float(ratios[CLIENT_UPDATES]),
        rate_ratio=float(ratios["per_h"]),
        client_updates=means[CLIENT_UPDATES].tolist(),
        client_updates_per_h=means["per_h"].tolist(),
        tied=order[tied].tolist(),
        quickest=str(order[0]),
        doubts=doubts,
    )


def longest_wait(runs: Sequence[RunFacts]) -> tuple[str, float]:
    """What most of the time on the critical paths of runs went to, and its share; NaN if it is not known."""
    seconds = pd.DataFrame([run.waits_s for run in runs]).sum()
    return (str(seconds.idxmax()), seconds.max() / seconds.sum()) if len(seconds) else ("", np.nan)


def winners(
    frame: pd.DataFrame, written: Callable[[float], str], *, higher: bool = True
) -> dict[str, list[str]]:
    """By setting, the variants none of which is clearly better than the others, in a table with ``setting``, ``label``
    and a ``value`` of each run.

    They are the variant with the best mean, those whose mean has the same text, and those whose range overlaps with
    its range; of more than :data:`FEW` seeds, whose interval does.
    """
    is_few = frame.groupby(["setting", "label"]).size().min() <= FEW
    found = {}
    for setting, rows in frame[np.isfinite(frame["value"])].groupby("setting", sort=False):
        values = [
            (str(label), each.to_numpy())
            for label, each in rows.groupby("label", sort=False)["value"]
        ]
        means = [float(each.mean()) for _, each in values]
        ends = [
            (each.min(), each.max())
            if is_few or len(each) < INTERVAL_RUNS
            else mean_of_reached(each)[1:]
            for _, each in values
        ]
        best = means.index(max(means) if higher else min(means))
        low, high = ends[best]
        found[str(setting)] = [
            label
            for (label, _), mean, (least, most) in zip(values, means, ends, strict=True)
            if written(mean) == written(means[best]) or (least <= high and most >= low)
        ]
    return found


NO_WINNER = "no clear winner"


def ahead(frame: pd.DataFrame, written: Callable[[float], str], *, higher: bool = True) -> str:
    """The :func:`winners` and their mean if one text has it: ``90.0% with fedavg``; of several settings, those that are
    alone in most: ``fedavg in 2 of 3 settings``."""
    found = winners(frame, written, higher=higher)
    if not found:
        return "none"
    means = frame.groupby(["setting", "label"])["value"].mean()
    texts = {
        setting: {written(means[setting, label]) for label in labels}
        for setting, labels in found.items()
    }
    clear = {setting: labels for setting, labels in found.items() if len(texts[setting]) == 1}
    settings = frame["setting"].nunique()
    if settings > 1:
        labels = [label for each in clear.values() for label in each]
        return (
            most_often(labels, settings) if clear else f"{NO_WINNER} in any of {settings} settings"
        )
    ((setting, first),) = found.items()
    if not clear:
        return f"{NO_WINNER} {between(first)}"
    everyone = len(first) == frame["label"].nunique() > 1
    return f"{texts[setting].pop()} with {'all variants' if everyone else listed(first)}"


def between(names: Sequence[str]) -> str:
    """Variants of which none is first: ``between a and b``, ``among 7 variants``."""
    if len(names) > NAMED:
        return f"among {len(names)} variants"
    return f"{'between' if len(names) == 2 else 'among'} {listed(names)}"


def most_often(labels: Iterable[str], settings: int) -> str:
    """The labels that appear most often, and how often: ``fedavg in 2 of 3 settings``."""
    counts = Counter(labels)
    most = max(counts.values())
    names = [label for label, count in counts.items() if count == most]
    return f"{listed(names)} in {most} of {settings} settings"
