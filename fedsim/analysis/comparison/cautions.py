"""Cautions of a comparison: rules on its runs and tables that catch what would lead to a wrong conclusion.

A rule yields sentences, and its docstring says what it finds. Those of :data:`IN_SETTINGS` look at one setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.figures.base import sentence
from fedsim.parts.component import is_user_reference
from fedsim.scenario.comparing import key_of, text
from fedsim.vocabulary.formatting import format_count, format_counted, format_duration, format_names

_SHOWN = 3


def cautions(comparison: ComparisonTables) -> list[str]:
    """One sentence per caution; empty if there are none. Those that hold in all settings do not name one."""
    sentences = [text for rule in ON_RUNS for text in rule(comparison)]
    settings = comparison.grouping.settings
    for rule in IN_SETTINGS:
        plain = {tuple(rule(comparison.grouping.of(name), comparison, "")) for name in settings}
        for name in settings[:1] if len(plain) == 1 else settings:
            where = f" ({name})" if len(plain) > 1 else ""
            sentences += rule(comparison.grouping.of(name), comparison, where)
    return sentences


def not_comparable(comparison: ComparisonTables, target: Target) -> str:
    """Why the times to a target do not rank the variants, as a clause; empty if they do."""
    names = [group.name for group in comparison.stopped_before(target)]
    return (
        f"not comparable: runs of {_listed(names)} had stopped at their own target" if names else ""
    )


def diverged(comparison: ComparisonTables) -> Iterator[str]:
    """Runs whose models have diverged."""
    runs = [run for run in comparison.facts if math.isfinite(run.diverged_s)]
    if runs:
        has = "has" if len(runs) == 1 else "have"
        first = format_duration(min(run.diverged_s for run in runs))
        yield (
            f"{format_counted(len(runs), 'run')} {has} diverged, the first after {first}: "
            f"{'; '.join(_with_counts(comparison, runs))}. Final values that are not finite are left out, and so are "
            "means over them."
        )


def stopped(comparison: ComparisonTables) -> Iterator[str]:
    """Runs of several groups that ended at the target of their scenario."""
    by_target: dict[tuple[tuple[str, float], ...], list[RunFacts]] = {}
    for run in comparison.facts if len(comparison.groups) > 1 else ():
        if run.stopped_at:
            by_target.setdefault(tuple(run.stopped_at.items()), []).append(run)
    for target, runs in by_target.items():
        titles = format_names([comparison.title(Target(*each)) for each in target])
        yield (
            f"{format_counted(len(runs), 'run')} stopped at stop.target ({titles}): "
            f"{_listed(_with_counts(comparison, runs))}. Harder levels and final values of these runs are not "
            "comparable; to compare them, run without stop.target."
        )


def left_out(comparison: ComparisonTables) -> Iterator[str]:
    """Runs that are missing, and why."""
    reasons = Counter(item.reason for item in comparison.left_out).most_common(_SHOWN)
    if reasons:
        names = _listed([item.path.name for item in comparison.left_out])
        shown = "; ".join(f"{reason} ({format_count(count)})" for reason, count in reasons)
        yield f"{format_counted(len(comparison.left_out), 'run')} left out ({names}): {shown}."


def not_measured(comparison: ComparisonTables) -> Iterator[str]:
    """Metrics of the targets and of the clients that only some variants measured."""
    metrics = [goal.metric for goal in comparison.goals]
    metrics += [name for name in comparison.metrics if name == "client_accuracy"]
    for metric in dict.fromkeys(metrics):
        names = [
            group.name
            for group in comparison.groups
            if not any(metric in run.metrics for run in group.runs)
        ]
        if names:
            hint = "; set evaluation.per_client: true" if metric.startswith("client_") else ""
            yield f"{sentence(comparison.definition(metric).label)} was not measured for {_listed(names)}{hint}."


def other_world(groups: Sequence[Group], comparison: ComparisonTables, where: str) -> Iterator[str]:
    """Variants that learn from different data, or that differ in task or devices as well as in the server, so that the
    cause of a difference is unclear."""
    differing = [
        path
        for path in comparison.grouping.differing
        if len({key_of(group.values, [path]) for group in groups}) > 1
    ]
    data = [path for path in differing if path.startswith("task.dataset.")]
    world = [path for path in differing if path.startswith(("task.", "devices."))]
    if data or (world and any(path.startswith("server.") for path in differing)):
        paths = data or world
        path = next((path for path in paths if path.endswith(".name")), paths[0])
        by_value: dict[str, list[str]] = {}
        for group in groups:
            value = group.values.get(path)
            by_value.setdefault(value if isinstance(value, str) else text(value), []).append(
                group.label
            )
        difference = "learn from different data" if data else "differ in more than the server"
        others = [other for other in paths if other != path]
        more = f"; also different: {', '.join(others)}" if others else ""
        yield (f"Variants{where} {difference}: {path} is {_each(by_value, ' for ')}{more}.")


def other_weights(
    groups: Sequence[Group], comparison: ComparisonTables, where: str
) -> Iterator[str]:
    """Variants that weight the updates of clients with unequal numbers of samples differently."""
    by_weights: dict[str, list[str]] = {}
    for group in groups:
        run = group.runs[0]
        # A Flower app has a strategy instead of a method.
        method = run.scenario["server"].get("method")
        if method is not None and run.unequal_samples:
            # Built-in methods without the parameter give all clients equal weights; a user's method may do anything.
            usual = None if is_user_reference(method["name"]) else "uniform"
            weights = method.get("weights") or usual
            if weights is not None:
                words = "by samples" if weights == "samples" else "equally"
                by_weights.setdefault(words, []).append(group.label)
    if len(by_weights) > 1:
        each = _each(by_weights, " in ")
        yield (
            f"Clients{where} are weighted {each}; set server.method.weights to compare the rules alone."
        )


def other_seeds(groups: Sequence[Group], comparison: ComparisonTables, where: str) -> Iterator[str]:
    """Variants that share no seed with the baseline, or with the first variant of a setting without it."""
    first = next((group for group in groups if group.label == comparison.baseline), groups[0])
    seeds = {run.seed for run in first.runs}
    others = [group.label for group in groups if seeds.isdisjoint(run.seed for run in group.runs)]
    if others:
        yield (
            f"The runs of {_listed(others)} share no seed with those of {first.label}{where}: devices and data differ "
            "too; run them with the same seeds."
        )


def copies(groups: Sequence[Group], comparison: ComparisonTables, where: str) -> Iterator[str]:
    """Runs of one scenario and seed, which are separate variants."""
    by_values: dict[str, list[Group]] = {}
    for group in groups:
        by_values.setdefault(text(dict(group.values)), []).append(group)
    for alike in by_values.values():
        if len(alike) > 1:
            runs = [run for group in alike for run in group.runs]
            results = {(run.replicate, run.digest) for run in runs}
            equal = len(results) == len({run.replicate for run in runs})
            yield (
                f"{_listed([group.label for group in alike])} are runs of one scenario with the same seeds{where}, "
                + (
                    "and their results are identical; one of them is enough."
                    if equal
                    else "but their results differ, for example because code or libraries changed."
                )
            )


ON_RUNS: tuple[Callable[[ComparisonTables], Iterator[str]], ...] = (
    diverged,
    stopped,
    left_out,
    not_measured,
)
IN_SETTINGS: tuple[Callable[[Sequence[Group], ComparisonTables, str], Iterator[str]], ...] = (
    other_world,
    other_weights,
    other_seeds,
    copies,
)


def _with_counts(comparison: ComparisonTables, runs: Sequence[RunFacts]) -> list[str]:
    """The groups of these runs, each with their number."""
    names, paths = [], {run.path for run in runs}
    for group in comparison.groups:
        if count := sum(run.path in paths for run in group.runs):
            of = f" ({count} of {len(group.runs)} runs)" if len(group.runs) > 1 else ""
            names.append(f"{group.name}{of}")
    return names


def _each(labels: Mapping[str, Sequence[str]], between: str) -> str:
    return "; ".join(f"{value}{between}{_listed(names)}" for value, names in labels.items())


def _listed(names: Sequence[str]) -> str:
    return format_names([f"'{name}'" if "," in name else name for name in names], _SHOWN)
