"""Cautions of a comparison: runs that are missing, or that cannot be compared fairly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fedsim.analysis.comparison.facts import Replicate, RunFacts
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.figures.base import sentence
from fedsim.parts.component import is_user_reference
from fedsim.scenario.comparing import key_of, text
from fedsim.vocabulary.formatting import format_count, format_counted, format_duration, format_names

_DATA = "task.dataset."
_WORLD = ("task.", "devices.")
_PER_CLIENT = "client_"
_SHOWN = 3


def cautions(comparison: ComparisonTables) -> list[str]:
    """One sentence per caution; empty if there are none."""
    sentences = [left_out(comparison)] if comparison.left_out else []
    settings = comparison.grouping.settings
    for find in (_other_world, _other_weights, _other_seeds, _copies):
        everywhere = {tuple(find(comparison, setting, "")) for setting in settings}
        if len(everywhere) == 1:
            sentences += everywhere.pop()
        else:
            for setting in settings:
                sentences += find(comparison, setting, f" ({setting})")
    return [
        *_diverged(comparison),
        *_stopped(comparison),
        *sentences,
        *_not_measured(comparison),
    ]


def left_out(comparison: ComparisonTables) -> str:
    """Which runs are missing, and why."""
    reasons = Counter(item.reason for item in comparison.left_out).most_common()
    shown = "; ".join(
        f"{format_count(count)} {reason if count == 1 else _plural(reason)}"
        for reason, count in reasons[:_SHOWN]
    )
    count = len(comparison.left_out)
    names = _listed([item.path.name for item in comparison.left_out])
    return f"{format_counted(count, 'run')} left out ({names}): {shown}."


def _plural(predicate: str) -> str:
    """What is true of several runs: ``were interrupted`` for ``was interrupted``."""
    verb, _, rest = predicate.partition(" ")
    verb = {"is": "are", "was": "were"}.get(verb, verb)
    return f"{verb} {rest}"


def not_comparable(comparison: ComparisonTables, target: Target) -> str:
    """Why the times to a target do not rank the variants, as a clause; empty if they do."""
    names = [group.name for group in comparison.stopped_before(target)]
    return (
        f"not comparable: runs of {_listed(names)} had stopped at their own target" if names else ""
    )


def _diverged(comparison: ComparisonTables) -> Iterator[str]:
    """Runs whose models have diverged."""
    runs = [run for run in comparison.facts if math.isfinite(run.diverged_s)]
    if not runs:
        return
    names, times = _with_counts(comparison, runs), [run.diverged_s for run in runs]
    subject = f"{format_counted(len(times), 'run')} {'has' if len(times) == 1 else 'have'}"
    first = f"{', the first' if len(times) > 1 else ''} after {format_duration(min(times))}"
    yield (
        f"{subject} diverged{first}: {'; '.join(names)}. Final values that are not finite are left out, "
        "and so are means over them."
    )


def _stopped(comparison: ComparisonTables) -> Iterator[str]:
    """Runs of several groups that ended at the target of their scenario."""
    if len(comparison.groups) == 1:
        return
    by_target: dict[tuple[tuple[str, float], ...], list[RunFacts]] = {}
    for run in comparison.facts:
        if run.stopped_at:
            by_target.setdefault(tuple(run.stopped_at.items()), []).append(run)
    for target, runs in by_target.items():
        names = _with_counts(comparison, runs)
        everyone = len(runs) == len(comparison.facts)
        subject = "Every run" if everyone else format_counted(len(runs), "run")
        titles = [comparison.title(Target(*each)) for each in target]
        yield (
            f"{subject} stopped at stop.target ({format_names(titles)})"
            f"{'' if everyone else f': {_listed(names)}'}. Harder levels and final values of these runs are not "
            "comparable; to compare them, run without stop.target."
        )


def _with_counts(comparison: ComparisonTables, runs: Sequence[RunFacts]) -> list[str]:
    """The groups of these runs, each with their number."""
    names, paths = [], {run.path for run in runs}
    for group in comparison.groups:
        if count := sum(run.path in paths for run in group.runs):
            of = f" ({count} of {len(group.runs)} runs)" if len(group.runs) > 1 else ""
            names.append(f"{group.name}{of}")
    return names


def _other_world(comparison: ComparisonTables, setting: str, where: str) -> Iterator[str]:
    """Variants of one setting that learn from different data, or that differ in task or devices as well as in the
    server, so that the cause of a difference is unclear."""
    groups = comparison.grouping.of(setting)
    differing = [path for path in comparison.grouping.differing if _varies(groups, path)]
    data = [path for path in differing if path.startswith(_DATA)]
    server = [path for path in differing if path.startswith("server.")]
    world = [path for path in differing if path.startswith(_WORLD)] if server else []
    paths = data or world
    if not paths:
        return
    path = next((path for path in paths if path.endswith(".name")), paths[0])
    others = [other for other in paths if other != path]
    labels_by_value: dict[str, list[str]] = {}
    for group in groups:
        labels_by_value.setdefault(_value(group, path), []).append(group.label)
    values = "; ".join(
        f"{value} for {_listed(labels)}" for value, labels in labels_by_value.items()
    )
    difference = "learn from different data" if data else "differ in more than the server"
    more = f"; also different: {', '.join(others)}" if others else ""
    yield f"Variants{where} {difference}: {path} is {values}{more}."


def _other_weights(comparison: ComparisonTables, setting: str, where: str) -> Iterator[str]:
    """Variants that weight the updates of clients with unequal numbers of samples differently."""
    labels_by_weights: dict[str, list[str]] = {}
    for group in comparison.grouping.of(setting):
        run = group.runs[0]
        # A Flower app has a strategy instead of a method.
        method = run.scenario["server"].get("method")
        if method is None or not run.unequal_samples:
            continue
        weights = method.get("weights")
        # Built-in methods without the parameter give all clients equal weights; a user's method may do anything.
        if weights is None and not is_user_reference(method["name"]):
            weights = "uniform"
        if weights is not None:
            labels_by_weights.setdefault(weights, []).append(group.label)
    if len(labels_by_weights) > 1:
        values = "; ".join(
            f"{'by samples' if weights == 'samples' else 'equally'} in {_listed(labels)}"
            for weights, labels in labels_by_weights.items()
        )
        yield f"Clients{where} are weighted {values}; set server.method.weights to compare the rules alone."


def _other_seeds(comparison: ComparisonTables, setting: str, where: str) -> Iterator[str]:
    """Variants that share no seed with the baseline, or with the first variant of a setting without it."""
    groups = comparison.grouping.of(setting)
    first = next((group for group in groups if group.label == comparison.baseline), groups[0])
    seeds = {run.seed for run in first.runs}
    others = [group.label for group in groups if seeds.isdisjoint(run.seed for run in group.runs)]
    if others:
        yield (
            f"The runs of {_listed(others)} share no seed with those of {first.label}{where}: devices and data differ "
            "too; run them with the same seeds."
        )


def _copies(comparison: ComparisonTables, setting: str, where: str) -> Iterator[str]:
    """Runs of one scenario and seed, which are separate variants."""
    alike: dict[str, list[Group]] = {}
    for group in comparison.grouping.of(setting):
        alike.setdefault(text(dict(group.values)), []).append(group)
    for groups in alike.values():
        if len(groups) > 1:
            digests: dict[Replicate, set[str]] = {}
            for run in [run for group in groups for run in group.runs]:
                digests.setdefault(run.replicate, set()).add(run.digest)
            equal = all(len(of_replicate) == 1 for of_replicate in digests.values())
            yield (
                f"{_listed([group.label for group in groups])} are runs of one scenario with the same seeds{where}, "
                + (
                    "and their results are identical; one of them is enough."
                    if equal
                    else "but their results differ, for example because code or libraries changed."
                )
            )


def _varies(groups: Sequence[Group], path: str) -> bool:
    return len({key_of(group.values, [path]) for group in groups}) > 1


def _value(group: Group, path: str) -> str:
    value: Any = group.values.get(path)
    return value if isinstance(value, str) else text(value)


def _not_measured(comparison: ComparisonTables) -> Iterator[str]:
    """Metrics of the targets and of the clients that only some variants measured."""
    metrics = [goal.metric for goal in comparison.goals]
    metrics += [name for name in comparison.metrics if name == f"{_PER_CLIENT}accuracy"]
    for metric in dict.fromkeys(metrics):
        without = [
            group.name
            for group in comparison.groups
            if not any(metric in run.metrics for run in group.runs)
        ]
        if without:
            hint = "; set evaluation.per_client: true" if metric.startswith(_PER_CLIENT) else ""
            yield f"{sentence(comparison.definition(metric).label)} was not measured for {_listed(without)}{hint}."


def _listed(names: Sequence[str]) -> str:
    return format_names([f"'{name}'" if "," in name else name for name in names], _SHOWN)
