"""The head of a comparison's page: one sentence and the main numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from typing import Any, NamedTuple

from fedsim.analysis.comparison.cautions import not_comparable
from fedsim.analysis.comparison.findings import (
    Cause,
    Race,
    causes,
    leader,
    leaders,
    most_often,
    races,
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
    groups = comparison.groups
    if comparison.no_difference:
        return Statement("No difference")
    if len(groups) == 1:
        return Statement(f"{groups[0].label}: {format_counted(len(groups[0].runs), 'run')}")
    if not comparison.metrics:
        return Statement(most_updates(comparison))
    target = main_target(comparison)
    return Statement(best_at_the_end(comparison)) if target is None else on(comparison, target)


def best_at_the_end(comparison: ComparisonTables) -> str:
    """The groups that ended best in the first metric, as a sentence without its period."""
    metric = comparison.definition(comparison.metrics[0])
    sign = 1 if metric.higher_is_better else -1
    ends = comparison.summary.assign(end=sign * comparison.summary[f"final_{metric.name}"])
    names, best = leaders(ends, "end", lambda value: metric.format(sign * value))
    value = sign * best
    if math.isnan(value):
        return f"No variant has a final {metric.label}"
    tied = len(names) == len(comparison.groups) > 1
    winner = f"{everyone(names)} tied" if tied else f"{format_names(names)} ended best"
    return f"{winner}, with {metric.with_article(metric.format_named(value))}"


def everyone(names: Sized) -> str:
    """The subject of a sentence about all of several groups."""
    return "Both" if len(names) == 2 else "All"


def most_updates(comparison: ComparisonTables) -> str:
    """The variants with the most client updates per hour, as a sentence without its period."""
    frame, settings = comparison.summary, comparison.grouping.settings
    best = frame["client_updates_per_h"].max()
    if not best > 0:
        return "No update was aggregated"
    if len(settings) == 1:
        who = leader(frame, "client_updates_per_h", format_number)
        subject = (
            f"{who} aggregated the most" if who else f"{everyone(frame)} aggregated equally many"
        )
        return f"{subject} client updates: {format_number(best)} per simulated hour"
    in_settings = dict(list(frame.assign(setting="").groupby(frame["setting"], sort=False)))
    every = [
        leaders(rows, "client_updates_per_h", format_number)[0] for rows in in_settings.values()
    ]
    if [len(names) for names in every] == [len(rows) for rows in in_settings.values()]:
        return "All variants of a setting aggregated equally many client updates per simulated hour"
    labels, count = most_often(every)
    each = " each" if len(labels) > 1 else ""
    where = f"in {count} of {len(settings)} settings"
    return f"{format_names(labels)}{each} aggregated the most client updates per simulated hour {where}"


def main_target(comparison: ComparisonTables) -> Target | None:
    """The target of the headline; None if it is not about a target."""
    return next(iter(_in_order(comparison)), None)


def other_targets(comparison: ComparisonTables) -> list[str]:
    """One sentence for every target that is not in the headline."""
    return [str(on(comparison, goal)) for goal in _in_order(comparison)[1:]]


def _in_order(comparison: ComparisonTables) -> list[Target]:
    """The targets by metric: those that some variant reached, the hardest first, then the others; within both, those
    that runs could not reach because they stopped before are last. Metrics of which no target was reached are last."""
    if comparison.no_difference or len(comparison.groups) == 1:
        return []
    won = {goal: bool(races(comparison, goal)) for goal in comparison.goals}
    metrics = [goal.metric for goal in comparison.goals]
    reached = {goal.metric for goal in comparison.goals if won[goal]}

    def rank(number: int) -> tuple[bool, int, bool, bool, int]:
        goal = comparison.goals[number]
        stopped = bool(comparison.stopped_before(goal))
        place = -number if won[goal] else number
        metric = metrics.index(goal.metric)
        return goal.metric not in reached, metric, not won[goal], stopped, place

    return [comparison.goals[number] for number in sorted(range(len(metrics)), key=rank)]


def on(comparison: ComparisonTables, target: Target) -> Statement:
    """The variants that were first to a target, and how many variants reached it if not all did."""
    frame, settings = comparison.targets_of(target), comparison.grouping.settings
    good = frame["time_s"].notna()
    noun = "combinations of variant and setting" if len(settings) > 1 else "variants"
    their = "its" if good.sum() == 1 else "their"
    half = f" in at least half of {their} runs" if frame["reached"][~good].any() else ""
    count = f"{good.sum()} of {len(frame)} {noun} reached"
    phrase, held = comparison.phrase(target), races(comparison, target)
    if stopped := not_comparable(comparison, target):
        return Statement(f"{count} {phrase}{half}", (stopped,))
    if not held:
        return Statement(f"No variant reached {phrase} in at least half of its runs")
    some = () if good.all() else (f"{count} it{half}",)
    if len(settings) == 1:
        (race,) = held
        whose = "its" if len(race.labels) == 1 else "their"
        shorter = (
            f"{race.quickest} has the shortest mean time, but another variant was faster on the seeds with which both "
            "reached it"
        )
        qualifiers = (
            *((shorter,) if race.quickest else ()),
            *((_doubt(race, whose),) if race.doubt else ()),
            *some,
        )
        clear = tuple(f"It {_factors(cause)}." for cause in causes(comparison, target))
        return Statement(_first(comparison, target, race), qualifiers, clear)
    labels, most = most_often([race.labels for race in held])
    verb = "was" if len(labels) == 1 else "were each"
    text = f"{format_names(labels)} {verb} first to {phrase} in {most} of {len(settings)} settings"
    text += ", including ties" if any(len(race.labels) > 1 for race in held) else ""
    unclear = sum(bool(race.doubt) for race in held)
    which = f"{unclear} of them"
    if unclear == len(settings):
        which = "both" if unclear == 2 else "all of them"
    doubts = [f"the lead is uncertain in {which}"] if unclear else []
    return Statement(text, (*doubts, *some), tuple(explanations(comparison, target)))


def _first(comparison: ComparisonTables, target: Target, race: Race) -> str:
    """Who was first to a target in the only setting, and by which factor."""
    phrase, frame = comparison.phrase(target), comparison.targets_of(target)
    after = f"after {format_duration(race.time_s)}{_some(race.reached, race.runs)}"
    if not race.same_means:
        which = everyone(race.labels).lower()
        return f"{format_names(race.labels)} tie in the time to {phrase} on the seeds with which {which} reached it"
    tie = "a tie at the resolution of the evaluations"
    if len(race.labels) == len(frame):
        return f"{everyone(frame)} reached {phrase} {after}: {tie}"
    text = f"{format_names(race.labels)} reached {phrase} first, {after}"
    text += f", {tie}" if len(race.labels) > 1 else ""
    # If every variant is beaten by another one, the first one may be slower.
    if race.cause is not None and race.cause.speedup > 1:
        row = frame[frame["label"] == race.cause.second].iloc[0]
        second = f"{race.cause.second}{_some(int(row['reached']), int(row['runs']))}"
        text += f": {_times_as(race.cause.speedup, 'fast')} as {second}"
    return text


def _doubt(race: Race, whose: str, where: str = "") -> str:
    return f"{whose} lead over {race.rival}{where} is uncertain: {race.doubt}"


def _some(reached: int, runs: int) -> str:
    """The number of runs that reached a target if not all did, because their mean is then biased; else empty."""
    return "" if reached == runs else f" ({reached} of {runs} runs)"


def explanations(comparison: ComparisonTables, target: Target) -> list[str]:
    """Why the first variant was faster than its partner: one sentence, or one per setting if there are several.

    With several settings, an uncertain lead is named; with one, the statement on the target does so.
    """
    clear = {cause.setting: cause for cause in causes(comparison, target)}
    if len(comparison.grouping.settings) == 1:
        return [_explanation(cause) for cause in clear.values()]
    sentences = []
    for race in () if not_comparable(comparison, target) else races(comparison, target):
        where = f" ({race.setting})"
        if race.setting in clear:
            sentences.append(_explanation(clear[race.setting], where))
        elif race.doubt:
            sentences.append(_doubt(race, f"{race.labels[0]}'s", where) + ".")
    return sentences


def causes_document(comparison: ComparisonTables) -> list[dict[str, Any]]:
    """The :class:`Cause` of every clear lead as a row, with its sentence."""
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
        for cause in causes(comparison, target)
    ]


def _explanation(cause: Cause, setting: str = "") -> str:
    """``fedbuff was 2 times as fast as fedavg (alpha=1): it needed ...``, with its period."""
    factor = _times_as(cause.speedup, "fast")
    return f"{cause.first} was {factor} as {cause.second}{setting}: it {_factors(cause)}."


def _factors(cause: Cause) -> str:
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


def tiles(comparison: ComparisonTables) -> list[Tile]:
    """The numbers below the headline."""
    settings = comparison.grouping.settings
    seeds = sorted({len(group.runs) for group in comparison.groups})
    labels = {group.label for group in comparison.groups}
    left_out = len(comparison.left_out)
    frame = comparison.runs
    return [
        Tile(
            "Runs",
            format_count(len(comparison.facts)),
            f"{format_count(left_out)} left out" if left_out else "all complete",
        ),
        Tile("Variants", format_count(len(labels)), f"baseline {comparison.baseline}"),
        *([Tile("Settings", format_count(len(settings)))] if len(settings) > 1 else []),
        Tile(
            "Seeds",
            format_count(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}",
            "per variant" if len(settings) == 1 else "per variant and setting",
        ),
        Tile("Simulated time", format_duration(frame["simulated_s"].sum()), "all runs together"),
        Tile("Wall time", format_duration(frame["wall_s"].sum()), "all runs together"),
    ]
