"""Cautions of a comparison: rules on its runs and tables that catch what would lead to a wrong conclusion.

A rule yields sentences; its docstring says when. Those of :data:`IN_SETTINGS` look at the groups of one setting.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.groups import Group, listed
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.figures.base import sentence
from fedsim.errors import printable
from fedsim.parts.component import is_user_reference
from fedsim.scenario.comparing import differing, text
from fedsim.vocabulary.formatting import format_counted, format_duration, format_names


def cautions(comparison: ComparisonTables) -> list[str]:
    """The sentences of all rules; those that do not hold in all settings begin with the names of theirs."""
    sentences = [caution for rule in ON_RUNS for caution in rule(comparison)]
    settings = comparison.grouping.settings
    for rule in IN_SETTINGS:
        where: dict[str, list[str]] = defaultdict(list)
        for setting in settings:
            for caution in rule(comparison, comparison.grouping.of(setting)):
                where[caution].append(setting)
        for caution, names in where.items():
            limited = f"{listed(names, 3)}: " if len(names) < len(settings) else ""
            sentences.append(f"{limited}{caution}")
    return sentences


def diverged(comparison: ComparisonTables) -> Iterator[str]:
    """Models of runs have diverged."""
    runs = [run for run in comparison.facts if math.isfinite(run.diverged_s)]
    if runs:
        first = format_duration(min(run.diverged_s for run in runs))
        yield (
            f"{format_counted(len(runs), 'run')} diverged, the first after {first}: {_groups_of(comparison, runs)}. "
            "Final values that are not finite are left out, and so are means over them."
        )


def stopped(comparison: ComparisonTables) -> Iterator[str]:
    """Runs of several groups ended at the target of their scenario."""
    runs = [run for run in comparison.facts if run.stopped_at]
    if runs and len(comparison.groups) > 1:
        yield (
            f"{format_counted(len(runs), 'run')} stopped at stop.target: {_groups_of(comparison, runs)}. Harder levels "
            "and final values of these runs are not comparable; to compare them, run without stop.target."
        )


def left_out(comparison: ComparisonTables) -> Iterator[str]:
    """Runs are missing."""
    reasons = Counter(item.reason for item in comparison.left_out)
    if reasons:
        names = listed(printable([item.path.name for item in comparison.left_out], lines=False), 3)
        yield f"{format_counted(reasons.total(), 'run')} left out ({names}): {'; '.join(reasons)}."


def from_logs(comparison: ComparisonTables) -> Iterator[str]:
    """Runs are logs of real runs."""
    columns = {"bytes": "bytes", "lost_steps": "local steps", "contributed": "single clients"}
    for run in (run for run in comparison.facts if run.log):
        absent = [name for figure, name in columns.items() if math.isnan(run.figures[figure])]
        lacks = format_names(["metrics", "energy", "times of phases", *absent])
        yield (
            f"{run.log} is the log of a real run, without {lacks}. Its population is the clients in it, and its "
            f"scenario is taken to be that of the first run. {' '.join(run.notes)}"
        ).rstrip()


def not_measured(comparison: ComparisonTables) -> Iterator[str]:
    """Only some variants, or some runs of one, measured a metric of a target or of the clients."""
    for metric in comparison.metrics:
        if metric not in (*comparison.main_metrics, "client_accuracy"):
            continue
        missing = {
            group.name: sum(metric not in run.metrics for run in group.runs)
            for group in comparison.groups
        }
        every = [g.name for g in comparison.groups if missing[g.name] == len(g.runs)]
        parts = [
            f"{missing[g.name]} of {len(g.runs)} runs of {g.name}"
            for g in comparison.groups
            if 0 < missing[g.name] < len(g.runs)
        ]
        hint = "; set evaluation.per_client: true" if metric.startswith("client_") else ""
        label = sentence(comparison.definition(metric).label)
        if every:
            yield f"{label} was not measured for {listed(every, 3)}{hint}."
        if parts:
            yield f"{label} was not measured in {listed(parts, 3)}, and is that of the other runs{hint}."


def other_world(comparison: ComparisonTables, groups: Sequence[Group]) -> Iterator[str]:
    """Variants learn from different data, or task or devices differ together with the server."""
    paths = differing([group.values for group in groups])
    data = [path for path in paths if path.startswith("task.dataset.")]
    world = [path for path in paths if path.startswith(("task.", "devices."))]
    if data:
        yield f"Variants learn from different data: {listed(data, 3)}."
    elif world and any(path.startswith("server.") for path in paths):
        yield (
            f"Variants differ in more than the server, so the cause of a difference is unclear: {listed(world, 3)}."
        )


def other_weights(comparison: ComparisonTables, groups: Sequence[Group]) -> Iterator[str]:
    """Variants weight the updates of clients with unequal numbers of samples differently."""
    by_weights: dict[str, list[str]] = defaultdict(list)
    path = "server.method"
    for group in groups:
        run = group.runs[0]
        server = run.scenario["server"]
        if server.get("edges"):
            server, path = server["edges"], "server.edges.method"
        # A Flower app has a strategy instead of a method, and a user's method may use any weights.
        method = server.get("method") or {"name": ""}
        is_known = method["name"] and not is_user_reference(method["name"])
        weights = method.get("weights") or ("uniform" if is_known else None)
        if run.unequal_samples and weights is not None:
            by_weights[weights].append(group.label)
    if len(by_weights) > 1:
        each = "; ".join(
            f"{weights} for {listed(names, 3)}" for weights, names in by_weights.items()
        )
        yield f"Clients have different weights: {each}; set {path}.weights to compare the rules alone."


def other_seeds(comparison: ComparisonTables, groups: Sequence[Group]) -> Iterator[str]:
    """Variants share no seed with the baseline, or with the first variant of a setting without it."""
    first = next((group for group in groups if group.label == comparison.baseline), groups[0])
    seeds = {run.seed for run in first.runs}
    others = [group.label for group in groups if seeds.isdisjoint(run.seed for run in group.runs)]
    if others:
        yield (
            f"The runs of {listed(others, 3)} share no seed with those of {first.label}: devices and data differ too; "
            "run them with the same seeds."
        )


def copies(comparison: ComparisonTables, groups: Sequence[Group]) -> Iterator[str]:
    """Runs of one scenario and seed are separate variants."""
    by_values: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_values[text(dict(group.values))].append(group)
    for alike in (alike for alike in by_values.values() if len(alike) > 1):
        results = {(run.seed, run.digest) for group in alike for run in group.runs}
        is_equal = len(results) == len({seed for seed, _ in results})
        names = listed([group.label for group in alike], 3)
        outcome = "identical: one is enough" if is_equal else "different: code or libraries changed"
        yield f"{names} are runs of one scenario with the same seeds, and their results are {outcome}."


ON_RUNS: tuple[Callable[[ComparisonTables], Iterator[str]], ...] = (
    diverged,
    stopped,
    left_out,
    from_logs,
    not_measured,
)
IN_SETTINGS: tuple[Callable[[ComparisonTables, Sequence[Group]], Iterator[str]], ...] = (
    other_world,
    other_weights,
    other_seeds,
    copies,
)


def _groups_of(comparison: ComparisonTables, runs: Sequence[RunFacts]) -> str:
    paths = {run.path for run in runs}
    groups = comparison.groups
    return listed([g.name for g in groups if paths.intersection(run.path for run in g.runs)], 3)
