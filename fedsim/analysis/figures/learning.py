"""Figures of learning: how good the model was, when, and for which clients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedsim.analysis.figures.base import (
    Column,
    Figure,
    costs_by,
    drawn_as_lines,
    histogram,
    section,
    sentence,
    thin,
)
from fedsim.runs import Run
from fedsim.runs.run import Lost, last_metrics, lost_since
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import (
    Kind,
    format_count,
    format_counted,
    format_duration,
    format_share,
    format_value,
)
from fedsim.vocabulary.metrics import OF_CLASS, MetricDefinition

_MOST_CLASSES = 8
"""Classes whose accuracies are drawn."""


def metric_names(run: Run) -> list[str]:
    """The measured metrics, the main one first: one of the scenario's target, else accuracy, else a share.

    If the clients have personal models, theirs are measured without a request, and come before the shared one.
    """
    measured = run.metrics.iloc[:, 3:].notna().any()
    names = [name for name in measured.index[measured] if not name.startswith(OF_CLASS)]
    goals = list(targets(run))
    is_requested = section(run, "evaluation").get("per_client")
    mains = ["accuracy"] if is_requested else ["client_accuracy", "client_mae", "accuracy"]
    mains = [name for name in mains if name in names][:1]

    def rank(name: str) -> tuple[int, bool, bool]:
        order = goals.index(name) if name in goals else len(goals)
        return order, name not in mains, run.metric_definition(name).unit != "share"

    return sorted(names, key=rank)


def targets(run: Run) -> dict[str, float]:
    """The scenario's target values, by metric."""
    return {str(name): float(value) for name, value in section(run, "stop", "target").items()}


def not_finite(run: Run, lost: Lost) -> str:
    """Since when a metric is not finite, as a clause."""
    since = f"version {format_count(lost.version)} ({format_duration(lost.time_s)})"
    return f"{run.metric_definition(lost.metric).label} is not finite from {since} on"


def learning(run: Run) -> Figure | None:
    """Metrics against simulated time, updates, bytes and client compute time; None for a timing-only run."""
    names = metric_names(run)
    if not names:
        return None
    table = run.metrics
    reached = {}
    keep = []
    for name, value in targets(run).items():
        if name in names:
            time_s = run.time_to(name, value)
            reached[name] = {"target": value, "time_s": time_s}
            if math.isfinite(time_s):
                keep.append(int(np.flatnonzero(table["time_s"].to_numpy() == time_s)[0]))
    rows = thin(len(table), keep=keep)
    times = table["time_s"].to_numpy()[rows]
    main = run.metric_definition(names[0])
    costs = costs_by(run, times)
    since = next((lost for lost in lost_since(run) if lost.metric == main.name), None)
    last, best = last_metrics(run)[main.name], main.best(table[main.name])
    end = f"{main.label} ended at {main.format(last)}"
    is_best = since is None and main.format(last) == main.format(best)
    compared = "the best evaluation" if is_best else f"the best evaluation was {main.format(best)}"
    return Figure(
        "learning",
        f"{sentence(not_finite(run, since) if since else end)}{', ' if is_best else '; '}{compared}.",
        (
            Column("time_s", "simulated time", "time", times),
            Column("version", "server updates", "count", table["version"].to_numpy()[rows]),
            Column("round", "round", "count", table["round"].to_numpy()[rows]),
            Column("bytes", "data moved", "bytes", costs["bytes"]),
            Column("compute_s", "client compute time", "time", costs["compute_s"]),
            *(
                Column(metric.name, metric.label, metric.unit, table[metric.name].to_numpy()[rows])
                for metric in map(run.metric_definition, names)
            ),
        ),
        {
            "metrics": names,
            "higher": {name: run.metric_definition(name).higher_is_better for name in names},
            "targets": reached,
        },
    )


def by_class(run: Run) -> Figure | None:
    """Accuracy of the classes over time, the worst at the end first; None if it was not measured."""
    table = run.metrics
    names = [name for name in table.columns[3:] if name.startswith(OF_CLASS)]
    if not names:
        return None
    rows = thin(len(table))
    order = table[names].iloc[-1].sort_values(kind="stable")
    words = run.info.get("label_names") or []
    numbers = {name: int(name.removeprefix(OF_CLASS)) for name in order.index}
    labels = {n: words[k] if k < len(words) else f"class {k}" for n, k in numbers.items()}
    ends = [f"{labels[name]} at {format_share(float(order[name]))}" for name in order.index]
    more = f" The {_MOST_CLASSES} worst are drawn." if len(names) > _MOST_CLASSES else ""
    return Figure(
        "by_class",
        f"The worst class ended with {ends[0]}, the best with {ends[-1]}.{more}",
        (
            Column("time_s", "simulated time", "time", table["time_s"].to_numpy()[rows]),
            *(
                Column(name, label, "share", table[name].to_numpy()[rows])
                for name, label in labels.items()
            ),
        ),
        drawn_as_lines(
            *({"key": name, "step": True} for name in order.index[:_MOST_CLASSES]),
            unit="accuracy",
            zero=False,
        ),
    )


def target_levels(
    metric: MetricDefinition, values: Sequence[float], stated: float | None
) -> list[float]:
    """Levels to list: those between the first value and the best one, and the stated one.

    Those of a share are multiples of 5%; others are closer to each other near the best value, and rounded.
    """
    finite = [value for value in values if math.isfinite(value)]
    first, best = (finite[0], metric.best(finite)) if finite else (0.0, 0.0)
    if metric.unit == "share":
        levels = [level / 20 for level in range(1, 20) if first < level / 20 <= best][-6:]
    else:
        left = [abs(best - first) * share for share in (0.5, 0.25, 0.1, 0.05, 0.01)]
        sign = -1 if metric.higher_is_better else 1
        levels = [round(best + sign * size, -math.floor(math.log10(size))) for size in left if size]
        # Of those, the ones that the page can show exactly.
        exact = [level for level in levels if level == float(f"{level:.4g}")]
        levels = [v for v in exact if metric.reached(best, v) and not metric.reached(first, v)]
    stated_too = levels if stated is None else [*levels, stated]
    return sorted(set(stated_too), reverse=not metric.higher_is_better)


def time_to_targets(run: Run) -> Figure | None:
    """When the main metric first reached several levels, and at which cost; None for a timing-only run."""
    names = metric_names(run)
    if not names:
        return None
    main = run.metric_definition(names[0])
    stated = targets(run).get(main.name)
    levels = target_levels(main, run.metrics[main.name].tolist(), stated)
    if not levels:
        return None
    times = np.array([run.time_to(main.name, level) for level in levels])
    first = run.metrics.drop_duplicates("time_s").set_index("time_s")["version"]
    versions = [int(first[time_s]) if math.isfinite(time_s) else math.nan for time_s in times]
    reached = np.isfinite(times)
    costs = costs_by(run, np.where(reached, times, 0.0))
    moved, computed = (np.where(reached, spent, np.nan) for spent in costs.values())
    return Figure(
        "targets",
        f"First evaluation at which {main.label} reached each level, and the cost until then.",
        (
            Column("level", main.label, main.unit, levels),
            Column("time_s", "simulated time", "time", times),
            Column("version", "updates", "count", versions),
            Column("bytes", "data", "bytes", moved),
            Column("compute_s", "compute", "time", computed),
        ),
        {"stated": levels.index(stated) if stated is not None else None},
    )


def late_rise(run: Run) -> list[str]:
    """A sentence if the main metric met its target by a steep rise in the last twentieth of the time, else nothing.

    The rise is from the median over the quarter of the time before, and from that over its end, and steep if it is more
    than :data:`_STEEP` times the usual change from one evaluation to the next.
    """
    name = next((name for name in metric_names(run)[:1] if name in targets(run)), None)
    if name is None or not math.isfinite(end_s := run.time_to(name, targets(run)[name])):
        return []
    metric, table = run.metric_definition(name), run.metrics[["time_s", name]].dropna()
    table = table[table["time_s"] <= end_s]
    late_s, quarter_s = _LATE * end_s, end_s / 4
    before = table[table["time_s"].between(end_s - late_s - quarter_s, end_s - late_s)][name]
    usual = float(table[name].diff().abs().median())
    if len(before) < _LEAST_EVALUATIONS:
        return []
    middle, recent = (float(each.median()) for each in (before, before.tail(len(before) // 4)))
    if min(abs(table[name].iloc[-1] - each) for each in (middle, recent)) <= _STEEP * usual:
        return []
    return [
        f"The target was met by a rise in the last {format_duration(late_s)}: "
        f"in the {format_duration(quarter_s)} before, the median was {metric.format(middle)}."
    ]


def drop(run: Run) -> Figure | None:
    """The largest drop of the main metric, and whose updates entered the versions in between.

    None if it is less than :data:`_STEEP` times the usual change from one evaluation to the next.
    """
    names = metric_names(run)[:1]
    table = run.metrics[["time_s", "version", *names]].dropna()
    if not names or len(table) < _LEAST_EVALUATIONS:
        return None
    metric = run.metric_definition(names[0])
    changes = np.diff(table[metric.name].to_numpy(np.float64))
    losses = -changes if metric.higher_is_better else changes
    at = int(np.argmax(losses))
    if not losses[at] > _STEEP * float(np.median(np.abs(changes))):
        return None
    (begin_s, begin, high), (end_s, end, low) = table.iloc[[at, at + 1]].to_numpy()
    used = run.dispatches.dropna(subset="aggregated_version")
    entered = used[used["aggregated_version"].gt(begin) & used["aggregated_version"].le(end)]
    if not len(entered):
        return None
    by_client = used["client_id"].value_counts()
    counts = entered["client_id"].value_counts().sort_index()
    counts = counts.sort_values(ascending=False, kind="stable")
    first = used.groupby("client_id")["aggregated_version"].min()
    new = int((first[counts.index] > begin).sum())
    clients = counts.index[:_MOST_CLIENTS].to_numpy()
    said, labels = _labels_of(run, entered["client_id"], used["client_id"], clients)
    return Figure(
        "drop",
        f"The largest drop from one evaluation to the next, from {metric.format(high)} to {metric.format(low)}, was "
        f"between {format_duration(begin_s)} and {format_duration(end_s)}. In between, the model received "
        f"{format_counted(len(entered), 'update')} of {format_counted(len(counts), 'client')}, "
        f"{format_count(new) if new else 'none'} of them for the first time.{said}",
        (
            Column("client_id", "client", "count", clients),
            *labels,
            Column("updates", "updates in these versions", "count", counts[clients].to_numpy()),
            Column("all", "in the whole run", "count", by_client[clients].to_numpy()),
        ),
    )


def _labels_of(
    run: Run, entered: pd.Series[int], used: pd.Series[int], clients: Ints
) -> tuple[str, tuple[Column, ...]]:
    """The label that the clients of the updates that ``entered`` held more of than those of all ``used`` updates., in a
    sentence, and the most frequent label of each of ``clients``; nothing if the run recorded no labels."""
    if run.partition is None or not len(run.partition):
        return "", ()
    held = run.partition.pivot_table(
        index="client_id", columns="label", values="count", aggfunc="sum", fill_value=0
    )
    words = run.info.get("label_names") or []
    called = [words[n] if n < len(words) else f"label {n}" for n in map(int, held.columns)]
    held.columns = pd.Index(called)
    shares = held.div(held.sum(axis=1).clip(lower=1), axis=0)
    theirs, every = (shares.reindex(rows).mean() for rows in (entered, used))
    label = str((theirs - every).idxmax())
    most = shares.reindex(clients, fill_value=0)
    return (
        f" Of their data, {format_share(theirs[label])} was {label}; in the whole run, {format_share(every[label])}.",
        (
            Column("label", "most frequent label", "text", most.idxmax(axis=1).tolist()),
            Column("share", "of its samples", "share", most.max(axis=1).to_numpy()),
        ),
    )


_STEEP, _LEAST_EVALUATIONS, _MOST_CLIENTS, _LATE = 3.0, 5, 20, 0.05


def client_mae(run: Run) -> Figure | None:
    """Distribution of the mean absolute error over clients; None if it was not measured."""
    words = "have an error of at most {}, the worst tenth of at least {}"
    return _over_clients(run, "mae", words, 0.9, "number", "mean absolute error")


def client_accuracy(run: Run) -> Figure | None:
    """Distribution of accuracy over clients; None if it was not measured."""
    words = "reached {}, the weakest tenth at most {}"
    return _over_clients(run, "accuracy", words, 0.1, "share", "accuracy")


def _over_clients(
    run: Run, name: str, words: str, tenth: float, kind: Kind, label: str
) -> Figure | None:
    """Distribution of the last values of a metric over clients; None if there are none."""
    values = run.clients[f"last_{name}"].to_numpy(np.float64) if run.has_clients else np.zeros(0)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    ends = [format_value(float(end), kind) for end in np.quantile(values, (0.5, tenth))]
    edges = np.arange(21) / 20 * (1.0 if kind == "share" else values.max() or 1.0)
    finding = f"Half of the clients {words.format(*ends)}."
    return histogram(f"client_{name}", finding, values, edges, kind, "clients", label)
