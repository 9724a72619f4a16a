"""The head of a comparison's page, in sentences, and its main numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.findings import (
    TOO_FEW,
    Lead,
    ahead,
    between,
    leads,
    longest_wait,
    most_often,
    winners,
)
from fedsim.analysis.comparison.groups import listed
from fedsim.analysis.comparison.tables import SAME, ComparisonTables
from fedsim.analysis.comparison.targets import Target, spread_over
from fedsim.analysis.figures.base import sentence
from fedsim.analysis.headline import Tile
from fedsim.runs.critical import CAUSES
from fedsim.vocabulary.formatting import (
    ABSENT,
    NAMED,
    format_count,
    format_counted,
    format_duration,
    format_mean_count,
    format_number,
    format_share,
    format_speed,
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
        every = leads(comparison, goals[0])
        clear = [lead for lead in every if lead.has_cause] if len(every) == 1 else []
        return [*on(comparison, goals[0]), *(reason(comparison, lead) for lead in clear)]
    if not comparison.metrics:
        return [most_updates(comparison), *_reason_of_rate(comparison)]
    return [best_at_the_end(comparison)]


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
    ends = comparison.by_run(lambda run: run.final(metric.name))
    best = ahead(ends, metric.format, higher=metric.higher_is_better)
    return f"Best final {metric.label}: {best}."


def _updates_per_h(run: RunFacts) -> float:
    return run.figures["client_updates_per_h"]


def most_updates(comparison: ComparisonTables) -> str:
    """The variants with the most client updates per hour, as a sentence."""
    most = ahead(comparison.by_run(_updates_per_h), format_number)
    return f"Most client updates per simulated hour: {most}."


def on(comparison: ComparisonTables, target: Target) -> list[str]:
    """Who was first to a target and how certainly, and how many variants reached it if not all did."""
    frame, phrase = comparison.merged(comparison.targets_of(target)), comparison.phrase(target)
    settings, every = comparison.grouping.settings, leads(comparison, target)
    good = int(frame["time_s"].notna().sum())
    noun = "combinations of variant and setting" if len(settings) > 1 else "variants"
    count = f"{good} of {len(frame)} {noun}" if good else "No variant"
    count += f" reached {phrase} in at least half of the runs."
    if stopped := [group.name for group in comparison.stopped_before(target)]:
        own = f"runs of {listed(stopped, 3)} had stopped at their own target"
        return [count, f"Times are not comparable: {own}."]
    if not every:
        return [count]
    clear = [lead for lead in every if not lead.doubts]
    reasons = Counter(lead.why for lead in every if lead.doubts)
    why = ", ".join(
        f"{r} in {n} of them" if len(reasons) > 1 else r for r, n in reasons.most_common()
    )
    if len(every) == 1:
        main = _first(comparison, target, every[0])
    else:
        most = most_often((label for lead in clear or every for label in lead.tied), len(settings))
        main = [f"First to {phrase}: {most}."]
        if not clear:
            number = len(settings)
            where = "either setting" if number == 2 else f"any of {format_count(number)} settings"
            none = f"No clear winner to {phrase} in {where}: {why}."
            main = [none, f"First on average: {most}."]
        elif reasons.total() > 1:
            uncertain = f"{format_count(reasons.total())} of {len(settings)} settings"
            main.append(f"Leads are uncertain in {uncertain}: {why}.")
    shown = clear if reasons.total() > 1 else every
    alone = len(every) == 1
    explained = [sentence for lead in shown for sentence in explanations(comparison, lead, alone)]
    is_said = alone and good == 1 == len(settings)
    return [*main, *explained, *([count] if good < len(frame) and not is_said else [])]


def _first(comparison: ComparisonTables, target: Target, lead: Lead) -> list[str]:
    """Who was first in the only setting with times, when, and how much faster; before it, why nobody clearly was."""
    rows = comparison.targets_of(target).set_index("setting").loc[[lead.setting]].set_index("label")

    def some(label: str) -> str:
        """How many runs reached the target if not all did, because their mean is then biased."""
        reached, runs = rows.loc[label, ["reached", "runs"]]
        return "" if reached == runs else f" ({reached} of {runs} runs)"

    goal, first = comparison.phrase(target), listed(_named(comparison, lead, lead.tied))
    goal += f" ({lead.setting})" if lead.setting else ""
    text = f"after {format_duration(rows['time_s'][lead.first])}{some(lead.first)}"
    if lead.speedup > 1:
        rival = f"{listed([lead.second])}{some(lead.second)}"
        ratio = lead.speedup, lead.low, lead.high
        text += f": {format_speed(*ratio, rival=rival, spread=spread_over(lead.seeds))}"
    if not lead.doubts and len(lead.tied) == rows["time_s"].count() < len(rows):
        usually = " in at least half of the runs" if rows["runs"].max() > 1 else ""
        return [f"Only {first} reached {goal}{usually}, {text}."]
    if not lead.doubts:
        return [f"{first} reached {goal} first, {text}."]
    variants = _named(comparison, lead, [*lead.tied, *lead.close])
    return [
        f"No clear winner {between(variants)} to {goal}: {lead.why}.",
        f"{first} reached it first{' on average' if rows['runs'].max() > 1 else ''}, {text}.",
    ]


def _named(comparison: ComparisonTables, lead: Lead, labels: Sequence[str]) -> list[str]:
    """What pages call variants of a lead; those with identical results are one."""
    every = [(lead.setting, label) for label in labels]
    return [comparison.shown[each] for each in every if each in comparison.shown]


def explanations(comparison: ComparisonTables, lead: Lead, alone: bool) -> Iterator[str]:
    """How certain a lead is; of one that is ``alone``, more than the reason that :func:`_first` has."""
    where = f" ({lead.setting})" if lead.setting else ""
    both = "on the seeds with which both reached it"
    if len(tied := _named(comparison, lead, lead.tied)) > 1:
        yield f"A tie{where}: {listed(tied)} were equally fast {both}."
    if lead.quickest not in lead.tied:
        yield f"{listed([lead.quickest])} has the shortest mean time{where}, but another variant was faster {both}."
    others = [label for label in lead.doubts if label not in lead.close]
    for rivals, why in ((others, TOO_FEW),) if alone else ((lead.close, lead.why),):
        if rivals := _named(comparison, lead, rivals):
            over = f"{listed([lead.first])} over {listed(rivals, NAMED)}"
            yield f"The lead of {over}{where} is uncertain: {why}."


def speed_words(comparison: ComparisonTables, row: Mapping[Hashable, Any]) -> str:
    """The speed of a row of the standings relative to the baseline, with its spread."""
    if comparison.baseline in row["label"].split(SAME):
        return "baseline" if math.isfinite(row["speed"]) else ABSENT
    ends = row["speed_low"], row["speed_high"]
    return format_speed(row["speed"], *ends, spread=comparison.before(row["common"]).strip())


def reason(comparison: ComparisonTables, lead: Lead) -> str:
    """The larger factor of a clear lead, as a sentence: fewer client updates, or more of them per hour, and what the
    server of the second variant waited for most if it is something else."""
    where = f" ({lead.setting})" if lead.setting else ""
    if lead.rate_ratio * lead.updates_ratio <= 1:
        updates = " against ".join(map(format_mean_count, lead.client_updates))
        return f"{listed([lead.first])} needed fewer client updates{where}: {updates}."
    rates = " against ".join(map(format_number, lead.client_updates_per_h))
    text = f"{listed([lead.first])} aggregated more client updates per hour{where}: {rates}"
    return f"{'; '.join([text, *_waits(comparison, lead.first, lead.second, lead.setting)])}."


def _waits(comparison: ComparisonTables, first: str, rival: str, setting: str) -> Iterator[str]:
    """What most of the time of a rival's server went to; nothing if it is the same as with the first variant."""
    runs = {group.label: group.runs for group in comparison.grouping.of(setting)}
    (other, _), (cause, share) = longest_wait(runs[first]), longest_wait(runs[rival])
    if cause and other != cause:
        went = f"{format_share(share)} of the server’s time went to {CAUSES[cause]}"
        yield f"with {listed([rival])}, {went}"


def _reason_of_rate(comparison: ComparisonTables) -> Iterator[str]:
    """Why a variant has the most client updates per hour, if one clearly has in the only setting."""
    best = winners(comparison.by_run(_updates_per_h), format_number)
    labels = {name: label for (_, label), name in comparison.shown.items()}
    if len(comparison.grouping.settings) == 1 and len(*best.values()) == 1:
        ((setting, (first,)),) = best.items()
        others = [label for label in labels.values() if label != labels[first]]
        rival = comparison.baseline if comparison.baseline in others else others[0]
        for waits in _waits(comparison, labels[first], rival, setting):
            yield f"{sentence(waits)}."


def causes_document(comparison: ComparisonTables) -> list[dict[str, Any]]:
    """The numbers of every lead with a cause, and its sentence."""
    return [
        {
            "metric": target.metric,
            "target": target.value,
            **lead._asdict(),
            "sentence": reason(comparison, lead),
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
        Tile(
            "Variants",
            format_count(len({*comparison.shown.values()})),
            f"baseline {comparison.baseline}",
        ),
        *([Tile("Settings", format_count(settings))] if settings > 1 else []),
        Tile("Seeds", " to ".join(dict.fromkeys(map(format_count, (min(seeds), max(seeds)))))),
        Tile("Simulated time", format_duration(frame["simulated_s"].sum()), "all runs together"),
        Tile("Wall time", format_duration(frame["wall_s"].sum()), "all runs together"),
    ]
