"""The head of a comparison's page, in sentences, and its main numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.findings import Lead, ahead, leads, losses_of, most_often, waits_of
from fedsim.analysis.comparison.groups import listed
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.headline import Tile
from fedsim.runs.critical import CAUSES
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_mean_count,
    format_names,
    format_number,
    format_roughly,
    format_share,
    format_times,
)


def headline(comparison: ComparisonTables) -> list[str]:
    """The comparison in a sentence, and the sentences that qualify and explain it."""
    if comparison.no_difference:
        return ["No difference."]
    if len(comparison.groups) == 1:
        (group,) = comparison.groups
        return [f"{group.label}: {format_counted(len(group.runs), 'run')}."]
    goals = targets_in_order(comparison)
    if goals:
        return on(comparison, goals[0])
    if not comparison.metrics:
        better = _best_causes(comparison, "client_updates_per_h", format_number)
        return [most_updates(comparison), *better]
    metric = comparison.definition(comparison.metrics[0])
    final = f"final_{metric.name}"
    better = _best_causes(comparison, final, metric.format, higher=metric.higher_is_better)
    return [best_at_the_end(comparison), *better]


def _best_causes(
    comparison: ComparisonTables,
    column: str,
    written: Callable[[float], str],
    *,
    higher: bool = True,
) -> Iterator[str]:
    """The :func:`causes` of the variant with the best mean over settings; none if the values of two are ``written``
    alike."""
    means = comparison.summary.groupby("label", sort=False)[column].mean()
    means = means.sort_values(ascending=not higher, kind="stable")
    if means.map(written).iloc[:2].nunique() > 1:
        yield from causes(comparison, *means.index[:2])


def targets_in_order(comparison: ComparisonTables) -> list[Target]:
    """The targets that a variant reached, by metric and from the hardest to the easiest, then the others; none if there
    is nothing to compare."""
    if comparison.no_difference or len(comparison.groups) == 1:
        return []
    metrics = [goal.metric for goal in comparison.goals]
    # The goals of a metric go from the easiest to the hardest.
    order = [
        (not leads(comparison, goal), metrics.index(goal.metric), -number, goal)
        for number, goal in enumerate(comparison.goals)
    ]
    return [goal for *_, goal in sorted(order)]


def rows_in_order(comparison: ComparisonTables) -> pd.DataFrame:
    """The summary as documents and the terminal show it: in the order of the page's first figure, if there is one."""
    goals, frame = targets_in_order(comparison), comparison.merged(comparison.summary)
    if not goals:
        return frame
    return comparison.standings(goals[0])[["setting", "label"]].merge(frame)


def other_targets(comparison: ComparisonTables) -> list[str]:
    """The sentences on each target that is not in the headline."""
    return [" ".join(on(comparison, goal)) for goal in targets_in_order(comparison)[1:]]


def best_at_the_end(comparison: ComparisonTables) -> str:
    """The variants that ended best in the first metric, as a sentence."""
    metric = comparison.definition(comparison.metrics[0])
    best = ahead(
        comparison.summary, f"final_{metric.name}", metric.format, higher=metric.higher_is_better
    )
    return f"Best final {metric.label}: {best}."


def most_updates(comparison: ComparisonTables) -> str:
    """The variants with the most client updates per hour, as a sentence."""
    most = ahead(comparison.summary, "client_updates_per_h", format_number)
    return f"Most client updates per simulated hour: {most}."


def on(comparison: ComparisonTables, target: Target) -> list[str]:
    """Who was first to a target, how certainly and why, and how many variants reached it if not all did."""
    frame, phrase = comparison.targets_of(target), comparison.phrase(target)
    settings, every = comparison.grouping.settings, leads(comparison, target)
    good = int(frame["time_s"].notna().sum())
    noun = "combinations of variant and setting" if len(settings) > 1 else "variants"
    count = f"{good} of {len(frame)} {noun} reached {phrase} in at least half of the runs."
    if stopped := [group.name for group in comparison.stopped_before(target)]:
        own = f"runs of {listed(stopped, 3)} had stopped at their own target"
        return [count, f"Times are not comparable: {own}."]
    if not every:
        return [f"No variant reached {phrase} in at least half of the runs."]
    clear = [lead for lead in every if not lead.doubts]
    reasons = Counter(next(iter(lead.doubts.values())) for lead in every if lead.doubts)
    why = ", ".join(
        f"{r} in {n} of them" if len(reasons) > 1 else r for r, n in reasons.most_common()
    )
    if len(settings) == 1:
        main = _first(comparison, target, every[0])
    else:
        most = most_often((label for lead in clear or every for label in lead.tied), len(settings))
        main = [f"First to {phrase}: {most}."]
        if not clear:
            where = (
                "either setting"
                if len(every) == 2
                else f"any of {format_count(len(every))} settings"
            )
            none = f"No clear winner to {phrase} in {where}: {why}."
            main = [none, f"First on average: {most}."]
        elif reasons.total() > 1:
            uncertain = f"{format_count(reasons.total())} of {len(every)} settings"
            main.append(f"Leads are uncertain in {uncertain}: {why}.")
    shown = clear if reasons.total() > 1 else every
    explained = [sentence for lead in shown for sentence in explanations(comparison, lead)]
    if len(settings) > 1 and not explained:
        names = Counter(label for lead in every for label in (*lead.tied, lead.second))
        explained = [*causes(comparison, *[name for name, _ in names.most_common(2)])]
    return [*main, *explained, *([count] if good < len(frame) else [])]


def _first(comparison: ComparisonTables, target: Target, lead: Lead) -> list[str]:
    """Who was first in the only setting, when, and by which factor; before it, why nobody is a clear winner."""
    rows = comparison.targets_of(target).set_index("label")

    def some(label: str) -> str:
        """How many runs reached the target if not all did, because their mean is then biased."""
        reached, runs = rows.loc[label, ["reached", "runs"]]
        return "" if reached == runs else f" ({reached} of {runs} runs)"

    goal, first = comparison.phrase(target), listed(_named(comparison, lead, lead.tied))
    text = f"after {format_duration(rows['time_s'][lead.first])}{some(lead.first)}"
    if lead.speedup > 1:
        text += (
            f": {format_times(lead.speedup, 'fast')} as {listed([lead.second])}{some(lead.second)}"
        )
        ends = [format_roughly(end) for end in (lead.slowest, lead.fastest)]
        if lead.seeds:
            spread = f", {' to '.join(ends)} over" if ends[0] != ends[1] else " on"
            text += f"{spread} {format_counted(lead.seeds, 'common seed')}"
    if not lead.doubts:
        return [f"{first} reached {goal} first, {text}."]
    variants = _named(comparison, lead, [*lead.tied, *lead.doubts])
    names = f"{'between' if len(variants) == 2 else 'among'} {listed(variants)}"
    if len(variants) > _NAMED:
        names = f"among {len(variants)} variants"
    return [
        f"No clear winner {names} to {goal}: {next(iter(lead.doubts.values()))}.",
        f"{first} reached it first on average, {text}.",
    ]


_NAMED = 3
"""Maximum number of variants that the first sentence names."""


def _named(comparison: ComparisonTables, lead: Lead, labels: Sequence[str]) -> list[str]:
    """What pages call variants of a lead; those with identical results are one."""
    every = [(lead.setting, label) for label in labels]
    return [comparison.shown[each] for each in every if each in comparison.shown]


def explanations(comparison: ComparisonTables, lead: Lead) -> Iterator[str]:
    """How certain a lead is, and why the first variant was faster if it is clear."""
    where = f" ({lead.setting})" if lead.setting else ""
    both = "on the seeds with which both reached it"
    if len(tied := _named(comparison, lead, lead.tied)) > 1:
        yield f"A tie{where}: {listed(tied)} were equally fast {both}."
    if lead.quickest not in lead.tied:
        yield f"{listed([lead.quickest])} has the shortest mean time{where}, but another variant was faster {both}."
    for rival, reason in list(lead.doubts.items())[:1] if lead.setting else ():
        yield f"The lead of {listed([lead.first])} over {listed([rival])}{where} is uncertain: {reason}."
    if lead.has_cause:
        yield explanation(lead)
    yield from causes(comparison, lead.first, lead.second, lead.setting)


def explanation(lead: Lead) -> str:
    """The factors of a speedup."""
    where = f" ({lead.setting})" if lead.setting else ""
    updates = " against ".join(map(format_mean_count, lead.client_updates))
    rates = " against ".join(map(format_number, lead.client_updates_per_h))
    return (
        f"{listed([lead.first])} was {format_times(lead.speedup, 'fast')} as {listed([lead.second])}{where}: it "
        f"needed {format_times(lead.updates_ratio, 'many')} client updates ({updates}) and aggregated them "
        f"{format_times(lead.rate_ratio, 'fast')} ({rates} per hour)."
    )


_LOSSES = {
    "idle": "of the clients’ time was idle",
    "waiting": "of the clients’ time was spent waiting for the server to use an update",
    "lost": "of the local steps were lost",
}

# Of a share; a smaller difference explains nothing.
_LEAST_DIFFERENCE = 0.01


def causes(
    comparison: ComparisonTables, first: str, second: str, setting: str | None = None
) -> Iterator[str]:
    """A sentence on where the time and the work of a variant and the baseline, or the second if it is the baseline,
    went into nothing, in a setting or in all; none if they do not differ."""
    rival = second if first == comparison.baseline else comparison.baseline
    runs: dict[str, list[RunFacts]] = {first: [], rival: []}
    for group in comparison.groups:
        if group.label in runs and setting in (None, group.setting):
            runs[group.label] += group.runs
    if not all(runs.values()) or len(runs) < 2:
        return
    losses, waits = map(losses_of, runs.values()), map(waits_of, runs.values())
    pairs = pd.DataFrame(losses).reindex(columns=list(_LOSSES)).T.dropna()
    apart = pairs[(pairs[0] - pairs[1]).abs() >= _LEAST_DIFFERENCE]
    parts = [f"{format_share(share)} {_LOSSES[str(name)]}" for name, share in apart[0].items()]
    others = list(map(format_share, apart[1]))
    most = [(str(shares.index[0]), shares.iloc[0]) for shares in waits if len(shares)]
    if len({cause for cause, _ in most}) > 1:
        went = [f"{CAUSES[cause]} ({format_share(share)})" for cause, share in most]
        parts.append(f"most of the server’s time went to {went[0]}")
        others.append(went[1])
    if parts:
        where = f" ({setting})" if setting else ""
        own = f"With {listed([first])}{where}, {format_names(parts)}"
        yield f"{own}; with {listed([rival])}, {format_names(others)}."


def causes_document(comparison: ComparisonTables) -> list[dict[str, Any]]:
    """The numbers of every lead with a cause, and its sentence."""
    return [
        {
            "metric": target.metric,
            "target": target.value,
            **lead._asdict(),
            "sentence": explanation(lead),
        }
        for target in targets_in_order(comparison)
        for lead in leads(comparison, target)
        if lead.has_cause
    ]


def tiles(comparison: ComparisonTables) -> list[Tile]:
    """The numbers below the headline."""
    seeds = [len(group.runs) for group in comparison.groups]
    frame, settings = comparison.runs, len(comparison.grouping.settings)
    left_out = len(comparison.left_out)
    return [
        Tile("Runs", format_count(len(frame)), f"{format_count(left_out)} left out"),
        Tile("Variants", format_count(frame["label"].nunique()), f"baseline {comparison.baseline}"),
        *([Tile("Settings", format_count(settings))] if settings > 1 else []),
        Tile("Seeds", " to ".join(dict.fromkeys(map(format_count, (min(seeds), max(seeds)))))),
        Tile("Simulated time", format_duration(frame["simulated_s"].sum()), "all runs together"),
        Tile("Wall time", format_duration(frame["wall_s"].sum()), "all runs together"),
    ]
