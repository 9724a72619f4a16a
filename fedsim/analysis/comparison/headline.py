"""The head of a comparison's page: one sentence and the main numbers."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from fedsim.analysis.comparison import findings
from fedsim.analysis.comparison.cautions import not_comparable
from fedsim.analysis.comparison.figures import best_at_the_end, most_updates, some_runs, when
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import INTERVAL_RUNS, Target
from fedsim.analysis.headline import Tile
from fedsim.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_names,
    format_number,
)


class Statement(NamedTuple):
    """A statement of a headline: the main clause, and the clauses that qualify it."""

    main: str
    qualifiers: tuple[str, ...] = ()

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
    if comparison.goals:
        return _goal(comparison, _in_order(comparison)[0])
    return Statement(best_at_the_end(comparison))


def other_targets(comparison: ComparisonTables) -> list[str]:
    """One sentence for every target that is not in the headline."""
    if comparison.no_difference or len(comparison.groups) == 1 or not comparison.metrics:
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


def _goal(comparison: ComparisonTables, target: Target) -> Statement:
    """The variant that was first to a target, and how many variants reached it if not all did."""
    first, frame = _first(comparison, target), comparison.targets_of(target)
    good = frame["time_s"].notna()
    several = len(comparison.grouping.settings) > 1
    noun = "combinations of variant and setting" if several else "variants"
    half = " in at least half of their runs" if frame["reached"][~good].any() else ""
    count = f"{good.sum()} of {len(frame)} {noun} reached"
    if stopped := not_comparable(comparison, target):
        return Statement(f"{count} {comparison.title(target)}{half}", (stopped,))
    if not good.any() or good.all():
        return first
    return Statement(first.main, (*first.qualifiers, f"{count} it{half}"))


def _variants(comparison: ComparisonTables) -> set[str]:
    return {group.label for group in comparison.groups}


def _first(comparison: ComparisonTables, target: Target) -> Statement:
    title, settings = comparison.title(target), comparison.grouping.settings
    missed = Statement(f"No variant reached {title} in at least half of its runs")
    if len(settings) > 1:
        best = findings.winners(comparison, target)
        if best is None:
            return missed
        labels, count, tied = best
        verb = "was" if len(labels) == 1 else "were each"
        text = (
            f"{format_names(labels)} {verb} first to {title} in {count} of {len(settings)} settings"
        )
        return Statement(f"{text}, including ties" if tied else text)
    frame = comparison.targets_of(target)
    first = findings.first_to(frame, comparison.baseline)
    if first is None:
        return missed
    if len(first.labels) == len(frame):
        return Statement(
            f"All reached {title} {when(first)}: a tie at the resolution of the evaluations"
        )
    text = f"{format_names(first.labels)} reached {title} first, {when(first)}"
    if len(first.labels) > 1:
        text += ", tied at the resolution of the evaluations"
    lead = findings.lead(comparison, target, first)
    doubts = _doubts(lead) if lead is not None else ()
    if math.isnan(first.speedup):
        return Statement(text, doubts)
    base = frame[frame["label"] == comparison.baseline].iloc[0]
    factor = format_number(float(f"{first.speedup:.3g}"))
    text += f": {factor} times as fast as {comparison.baseline}"
    text += some_runs(int(base["reached"]), int(base["runs"]))
    if first.may_be_chance:
        doubts = ("this may be due to chance (the 95% interval includes 1)",)
    return Statement(text, doubts)


def _doubts(lead: findings.Lead) -> tuple[str, ...]:
    """Why a lead may mean nothing, as a clause; none if it is clear."""
    if math.isfinite(lead.resolution_s):
        between = format_duration(lead.resolution_s)
        return (
            f"its lead over {lead.second} is shorter than the time between evaluations, {between}",
        )
    if lead.in_spread:
        return (f"the lead over {lead.second} is within the spread over seeds",)
    if lead.seeds < INTERVAL_RUNS:
        seeds = {0: "no common seed", 1: "one seed"}.get(lead.seeds, f"{lead.seeds} seeds")
        return (f"with {seeds}, the lead over {lead.second} may be due to chance",)
    return ()


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
