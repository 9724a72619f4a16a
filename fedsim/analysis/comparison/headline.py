"""The head of a comparison's page: one sentence and the main numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from fedsim.analysis.comparison import findings
from fedsim.analysis.comparison.cautions import not_comparable
from fedsim.analysis.comparison.figures import (
    best_at_the_end,
    everyone,
    most_updates,
    shorter_mean,
    some_runs,
    tie,
    when,
)
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.headline import Tile
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_mean_count,
    format_names,
    format_number,
    format_share,
)


class Statement(NamedTuple):
    """A statement of a headline: the main clause, the clauses that qualify it, and sentences on the cause.

    The text of a statement does not contain the sentences. With several settings, they are one per setting, on the
    cause or the uncertainty of the lead there.
    """

    main: str
    qualifiers: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join((self.main, *self.qualifiers))


def headline(comparison: ComparisonTables) -> str:
    """The comparison in one sentence."""
    return str(statement(comparison))


def statement(comparison: ComparisonTables) -> Statement:
    """The headline as a main clause, which a page writes large, and its qualifiers."""
    if comparison.no_difference:
        return Statement("No difference")
    groups = comparison.groups
    if len(groups) == 1:
        return Statement(f"{groups[0].label}: {format_counted(len(groups[0].runs), 'run')}")
    if not comparison.metrics:
        return Statement(most_updates(comparison))
    if (target := main_target(comparison)) is not None:
        head = _goal(comparison, target)
        if len(comparison.grouping.settings) > 1:
            return head._replace(sentences=tuple(explanations(comparison, target)))
        return head
    return Statement(best_at_the_end(comparison))


def main_target(comparison: ComparisonTables) -> Target | None:
    """The target of the headline; None if it is not about a target."""
    if comparison.no_difference or len(comparison.groups) == 1 or not comparison.metrics:
        return None
    return next(iter(_in_order(comparison)), None)


def other_targets(comparison: ComparisonTables) -> list[str]:
    """One sentence for every target that is not in the headline."""
    if main_target(comparison) is None:
        return []
    return [str(_goal(comparison, goal)) for goal in _in_order(comparison)[1:]]


def _in_order(comparison: ComparisonTables) -> list[Target]:
    """The targets by metric: of each, those that some variant reached, the hardest first, and then the others; within
    both, those that runs could not reach because they stopped before are last.

    Metrics of which no target was reached are last.
    """
    blocks = []
    for _, goals in itertools.groupby(comparison.goals, key=lambda goal: goal.metric):
        reached: list[Target] = []
        missed: list[Target] = []
        for goal in goals:
            (reached if findings.winners(comparison, goal) else missed).append(goal)
        reached.reverse()
        for group in (reached, missed):
            group.sort(key=lambda goal: bool(comparison.stopped_before(goal)))
        blocks.append((not reached, [*reached, *missed]))
    return [goal for _, block in sorted(blocks, key=lambda block: block[0]) for goal in block]


def explanations(comparison: ComparisonTables, target: Target) -> list[str]:
    """Why the first variant was faster than its partner: one sentence, or one per setting if there are several.

    With several settings, an uncertain lead is named; with one, the statement on the target does so.
    """
    causes = {cause.setting: cause for cause in findings.causes(comparison, target)}
    if len(comparison.grouping.settings) == 1:
        return [_explanation(cause) for cause in causes.values()]
    if not_comparable(comparison, target):
        return []
    sentences = []
    for setting in comparison.grouping.settings:
        if setting in causes:
            sentences.append(_explanation(causes[setting], f" ({setting})"))
        elif (race := findings.race_to(comparison, target, setting)) is not None:
            doubts = _doubts(race.leads, f"{race.first.labels[0]}'s", f" ({setting})")
            sentences += [f"{doubt}." for doubt in doubts]
    return sentences


def causes(comparison: ComparisonTables) -> list[dict[str, Any]]:
    """The :class:`~fedsim.analysis.comparison.findings.Cause` of every clear lead as a row, with its sentence."""
    if main_target(comparison) is None:
        return []
    return [
        {
            "setting": cause.setting,
            "metric": target.metric,
            "target": target.value,
            "first": cause.first,
            "second": cause.second,
            "seeds": cause.seeds,
            "speedup": cause.speedup,
            "updates_ratio": cause.updates_ratio,
            "rate_ratio": cause.rate_ratio,
            "client_updates": list(cause.updates),
            "client_updates_per_h": list(cause.rates_per_h),
            "sentence": _explanation(cause),
        }
        for target in _in_order(comparison)
        for cause in findings.causes(comparison, target)
    ]


def _explanation(cause: findings.Cause, setting: str = "") -> str:
    """``fedbuff was 2 times as fast as fedavg (alpha=1): it needed ...``, with its period."""
    factor = _times_as(cause.speedup, "fast")
    return f"{cause.first} was {factor} as {cause.second}{setting}: it {_factors(cause)}."


def _factors(cause: findings.Cause) -> str:
    """The two factors of a speedup, as a predicate."""
    number = _against(cause.updates, format_mean_count)
    rate = _against(cause.rates_per_h, format_number)
    more = _times_as(cause.updates_ratio, "many")
    faster = _times_as(cause.rate_ratio, "fast")
    # Fewer updates and a higher rate both save time.
    opposed = (cause.updates_ratio - 1) * (cause.rate_ratio - 1) > 0
    conjunction = "but" if opposed and "about" not in more + faster else "and"
    return f"needed {more} client updates ({number}) {conjunction} aggregated them {faster} ({rate} per hour)"


def _against(values: tuple[float, float], written: Callable[[float], str]) -> str:
    first, second = map(written, values)
    return f"{first} against {second}"


def _times_as(ratio: float, word: str) -> str:
    """A ratio as a comparison: ``6.82 times as fast``, ``92.6% as fast``, ``about as fast``."""
    rounded = float(f"{ratio:.3g}")
    if rounded == 1:
        return f"about as {word}"
    size = f"{format_number(rounded)} times" if rounded > 1 else format_share(ratio)
    return f"{size} as {word}"


def _goal(comparison: ComparisonTables, target: Target) -> Statement:
    """The variant that was first to a target, and how many variants reached it if not all did."""
    first, frame = _first(comparison, target), comparison.targets_of(target)
    good = frame["time_s"].notna()
    several = len(comparison.grouping.settings) > 1
    noun = "combinations of variant and setting" if several else "variants"
    their = "its" if good.sum() == 1 else "their"
    half = f" in at least half of {their} runs" if frame["reached"][~good].any() else ""
    count = f"{good.sum()} of {len(frame)} {noun} reached"
    if stopped := not_comparable(comparison, target):
        return Statement(f"{count} {comparison.phrase(target)}{half}", (stopped,))
    if not good.any() or good.all():
        return first
    return first._replace(qualifiers=(*first.qualifiers, f"{count} it{half}"))


def _variants(comparison: ComparisonTables) -> set[str]:
    return {group.label for group in comparison.groups}


def _first(comparison: ComparisonTables, target: Target) -> Statement:
    phrase, settings = comparison.phrase(target), comparison.grouping.settings
    missed = Statement(f"No variant reached {phrase} in at least half of its runs")
    if len(settings) > 1:
        best = findings.winners(comparison, target)
        if best is None:
            return missed
        labels, count, tied = best
        verb = "was" if len(labels) == 1 else "were each"
        text = f"{format_names(labels)} {verb} first to {phrase} in {count} of {len(settings)} settings"
        return Statement(
            f"{text}, including ties" if tied else text, _uncertain(comparison, target)
        )
    race = findings.race_to(comparison, target, settings[0])
    if race is None:
        return missed
    frame, first = comparison.targets_of(target), race.first
    tied = len(first.labels) > 1
    overtaken = () if first.faster is None else (shorter_mean(first.faster),)
    if first.shared is not None:
        return Statement(
            f"{format_names(first.labels)} tie in the time to {phrase}: {tie(first)}",
            (*overtaken, *_doubts(race.leads, "their")),
        )
    if len(first.labels) == len(frame):
        return Statement(
            f"{everyone(frame)} reached {phrase} {when(first)}: a tie at the resolution of the evaluations"
        )
    text = f"{format_names(first.labels)} reached {phrase} first, {when(first)}"
    if tied:
        text += ", tied at the resolution of the evaluations"
    cause = findings.cause(comparison, target, race)
    # If every variant is beaten by another one, the first one may be slower.
    if cause is not None and cause.speedup > 1:
        text += f": {_times_as(cause.speedup, 'fast')} as {cause.second}"
        row = frame[frame["label"] == cause.second].iloc[0]
        text += some_runs(int(row["reached"]), int(row["runs"]))
    clear = tuple(f"It {_factors(each)}." for each in findings.causes(comparison, target))
    doubts = _doubts(race.leads, "their" if tied else "its")
    return Statement(text, (*overtaken, *doubts), clear)


def _uncertain(comparison: ComparisonTables, target: Target) -> tuple[str, ...]:
    """In how many settings the first lead of a target may mean nothing, as a clause; none if all leads are clear."""
    settings = comparison.grouping.settings
    races = (findings.race_to(comparison, target, setting) for setting in settings)
    count = sum(any(lead.uncertain for lead in race.leads) for race in races if race is not None)
    if not count:
        return ()
    every = "both" if len(settings) == 2 else "all of them"
    return (f"the lead is uncertain in {every if count == len(settings) else f'{count} of them'}",)


def _doubts(leads: tuple[findings.Lead, ...], whose: str, setting: str = "") -> tuple[str, ...]:
    """Why the lead may mean nothing, as a clause; none if it is clear."""
    lead = next((lead for lead in leads if lead.uncertain), None)
    if lead is None:
        return ()
    if lead.ahead_s < 0:
        reason = f"{lead.other} was faster on the seeds with which both reached it"
    elif lead.ahead_s == 0:
        reason = "both were equally fast on the seeds with which both reached it"
    elif math.isfinite(lead.resolution_s):
        between = format_duration(lead.resolution_s)
        reason = f"it is shorter than the time between evaluations ({between})"
    elif lead.in_spread:
        reason = "it is within the spread over seeds"
    elif lead.seeds:
        reason = f"it rests on {'one seed' if lead.seeds == 1 else f'{lead.seeds} seeds'}"
    else:
        reason = "the two share no seed"
    return (f"{whose} lead over {lead.other}{setting} is uncertain: {reason}",)


def tiles(comparison: ComparisonTables) -> list[Tile]:
    """The numbers below the headline."""
    settings = comparison.grouping.settings
    seeds = sorted({len(group.runs) for group in comparison.groups})
    left_out = len(comparison.left_out)
    frame = comparison.runs
    return [
        Tile(
            "Runs",
            format_count(len(comparison.facts)),
            f"{format_count(left_out)} left out" if left_out else "all complete",
        ),
        Tile(
            "Variants", format_count(len(_variants(comparison))), f"baseline {comparison.baseline}"
        ),
        *([Tile("Settings", format_count(len(settings)))] if len(settings) > 1 else []),
        Tile(
            "Seeds",
            format_count(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}",
            "per variant" if len(settings) == 1 else "per variant and setting",
        ),
        Tile("Simulated time", format_duration(frame["simulated_s"].sum()), "all runs together"),
        Tile("Wall time", format_duration(frame["wall_s"].sum()), "all runs together"),
    ]
