"""The figures of the comparison page: the tables of a comparison as columns, and the sentences around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.facts import (
    COSTS,
    EDGE_FIGURES,
    FIGURES,
    LORENZ_AT,
    PERCENTILES,
    SPENT,
    RunFacts,
)
from fedsim.analysis.comparison.findings import NO_WINNER, TOO_FEW, ahead
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.comparison.headline import (
    best_at_the_end,
    most_updates,
    speed_words,
    targets_in_order,
)
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.tables import ComparisonTables, over_clients
from fedsim.analysis.comparison.targets import FEW, INTERVAL_RUNS, Target, spread_over
from fedsim.analysis.figures.base import Column, Columns, Figure, columns_of, sentence
from fedsim.analysis.figures.lines import cumulative, round_times
from fedsim.analysis.figures.time import PHASE_LABELS, RARE_PHASES
from fedsim.runs.records import SWEEP, SWEEP_PRECISION, is_sweep, read_sweep
from fedsim.scenario.comparing import by_section, flattened
from fedsim.scenario.description import with_units
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import (
    ABSENT,
    Kind,
    format_bytes,
    format_count,
    format_counted,
    format_difference,
    format_duration,
    format_interval,
    format_mean,
    format_mean_count,
    format_ratio,
    format_share,
    format_value,
)

ACCURACIES = np.arange(41) / 40
_GROUP: Columns = (("setting", "setting", "text"), ("label", "variant", "text"))
_WORK = (
    *("dispatches", "lost_dispatches", "lost_steps", "bytes", "lost_bytes", "compute_s"),
    *("lost_seconds", "energy_j"),
)
_DURATIONS = (
    *("client_updates_per_h", "interval_s", *(f"interval_p{p}_s" for p in PERCENTILES)),
    *(f"turnaround_p{percent}_s" for percent in PERCENTILES),
)
_PARTICIPATION = (
    *("updates", "per_update", "contributed", "gini", "staleness_mean", "staleness_max"),
    *("age_s", "tau_avg", "tau_max"),
)
_PRECISION: Columns = (
    ("ratio", "ratio to the baseline", "text"),
    ("interval", "95% interval", "text"),
    ("needed", "seeds needed", "text"),
    ("seeds", "seeds run", "count"),
    ("missed", "missed the target", "count"),
)
_FAIRNESS: Columns = (
    ("clients", "clients", "count"),
    ("mean", "mean", "share"),
    ("sd", "sd over clients", "share"),
    ("worst_tenth", "worst tenth", "share"),
    ("p10", "10th percentile", "share"),
    ("median", "median", "share"),
    ("p90", "90th percentile", "share"),
    ("jain", "Jain's index", "number"),
)


Described = str | tuple[str, str, Kind]
"""A column of a table: one of :data:`FIGURES`, or key, label and kind."""


def _table(
    comparison: ComparisonTables,
    frame: pd.DataFrame,
    columns: Iterable[Described],
    *,
    merges: bool = True,
    names: Columns = _GROUP,
) -> tuple[Column, ...]:
    """Columns of a frame, after the names of each row's group.

    The setting has a column only if there are several. If it ``merges``, variants with identical results are one row.
    """
    frame = comparison.merged(frame) if merges else frame
    described = [
        (name, *FIGURES[name]) if isinstance(name, str) else name for name in (*names, *columns)
    ]
    return columns_of(frame, described[len(comparison.grouping.settings) == 1 :])


def _standings(comparison: ComparisonTables, target: Target) -> tuple[pd.DataFrame, str]:
    """The standings of a target, with ``reached``, ``range`` and ``speed`` in words, and what their spreads are called
    together."""
    frame = comparison.standings(target)
    rows = frame.to_dict("records")
    seeds = [row["reached"] for row in rows if math.isfinite(row["low_s"])]
    seeds += [row["common"] for row in rows if math.isfinite(row["speed_low"])]
    frame = frame.assign(
        reached=[f"{row['reached']} of {row['runs']}" for row in rows],
        missed=frame["reached"] < frame["runs"],
        range=[
            ABSENT
            if math.isnan(row["low_s"])
            else comparison.before(row["reached"])
            + format_interval(row["low_s"], row["high_s"], format_duration)
            for row in rows
        ],
        speed=[speed_words(comparison, row) for row in rows],
    )
    return frame, spread_over(*seeds) if seeds else comparison.spread


def first_to(comparison: ComparisonTables) -> Figure | None:
    """The time of every run to the target of the headline, variants from the fastest to the slowest; None without one.

    ``rows`` of ``extra`` are for a picture: places on a logarithmic axis, from 0 to 1. Variants with identical results
    are one row.
    """
    goals = targets_in_order(comparison)
    if not goals:
        return None
    frame, spread = _standings(comparison, goals[0])
    looks = list(dict.fromkeys(comparison.shown.values()))
    every = np.concatenate(frame["seeds_s"].tolist())
    good = frame["time_s"].notna()
    if not good.any() or not (every > 0).any():  # The initial model meets the target.
        return None
    low, high = float(every[every > 0].min()), float(every.max())
    low, high = (low / 1.1, high * 1.1) if low < high else (low / 2, high * 2)

    def places(*seconds: float) -> list[float]:
        shares = np.log(np.maximum(seconds, low) / low) / math.log(high / low)
        known: list[float] = shares[np.isfinite(shares)].clip(0, 1).tolist()
        return known

    names = ("setting", "label", "reached", "missed", "time_s", "range", "speed")
    rows = [
        {
            **{name: row[name] for name in names},
            "look": looks.index(row["label"]),
            "seeds": places(*row["seeds_s"]),
            "ends": places(row["low_s"], row["high_s"]),
            "mean": next(iter(places(row["time_s"])), None),
        }
        for row in frame.to_dict("records")
    ]
    columns: Columns = (
        ("reached", "reached", "text"),
        ("time_s", "mean time", "time"),
        ("range", spread, "text"),
        ("speed", f"speed, {spread}", "text"),
    )
    shown = round_times(low, high, _LEAST_GAP)
    ticks = [(*places(s), format_duration(s)) for s in shown]
    title = f"Time to {comparison.phrase(goals[0])}"
    return Figure(
        "first",
        title,
        _table(comparison, frame, columns, merges=False),
        {
            "rows": rows,
            "ticks": ticks,
            "title": title,
            "note": relative_speeds(comparison),
            "spread": spread,
        },
    )


_LEAST_GAP = 0.12
"""The least distance of ticks as a share of the axis."""


def learning(comparison: ComparisonTables) -> Figure | None:
    """The chart of curves, with the medians of the first metric in the first setting; the page draws those of all from
    :func:`~fedsim.analysis.comparison.page.curves_document`."""
    if not comparison.metrics:
        return None
    finding = best_at_the_end(comparison)
    if comparison.is_stopped:
        finding = "Runs stopped at their target, so their final values do not rank the variants."
    setting, cost = comparison.grouping.settings[0], COSTS["time_s"]
    metric, columns = comparison.definition(comparison.metrics[0]), list[Column]()
    for group, x, curve in comparison.series():
        if group.setting == setting and (label := comparison.shown.get((setting, group.label))):
            columns = columns or [Column("time_s", *cost, x)]
            columns.append(Column(label, label, metric.unit, curve["median"]))
    return Figure("curves", finding, tuple(columns))


def quality(comparison: ComparisonTables) -> Figure | None:
    """The last and the best values of every metric."""
    if not comparison.metrics:
        return None
    frame = comparison.summary.copy()
    columns: list[tuple[str, str, Kind]] = [("runs", "runs", "count")]
    for metric in map(comparison.definition, comparison.metrics):
        final, best = f"final_{metric.name}", f"best_{metric.name}"
        ends = zip(frame[final], frame[f"{final}_sd"], strict=True)
        frame[final] = [format_mean(mean, sd, metric.unit) for mean, sd in ends]
        if not comparison.is_stopped:
            columns.append((final, f"final {metric.label}", "text"))
        columns.append((best, f"best {metric.label}", metric.unit))
    return Figure(
        "quality",
        f"Best values of {format_counted(len(comparison.facts), 'run')}; they stopped at their targets, so that their "
        "final values mean nothing."
        if comparison.is_stopped
        else f"Final values of {format_counted(len(comparison.facts), 'run')}.",
        _table(comparison, frame, columns),
    )


_LEAST: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("fewest client updates", "client_updates", format_mean_count),
    ("least data moved", "bytes", format_bytes),
    ("least client compute", "compute_s", format_duration),
)


_NONE_LEAST = "no variant needed clearly less than the others"


def target_figure(comparison: ComparisonTables, target: Target, number: int) -> Figure:
    """The times at which groups reached a target, and what it took them; the head of the page has who was first."""
    frame, spread = _standings(comparison, target)
    known = frame[frame["time_s"].notna()]
    reached = comparison.merged(comparison.reached[comparison.reached["goal"] == target])
    reached, least = reached.merge(known[["setting", "label"]]), list[str]()
    settings = known["setting"].unique()
    where = f" ({settings[0]})" if len(settings) == 1 and settings[0] else ""
    counts = reached.dropna(subset="time_s").groupby(["setting", "label"]).size()
    few = bool(counts.min() < INTERVAL_RUNS)
    for words, cost, written in _LEAST:
        spent = reached.assign(value=reached[cost])
        is_known = known[cost].any() and not few
        best = ahead(spent, written, higher=False) if is_known else NO_WINNER
        if not best.startswith(NO_WINNER):
            least.append(f"{words}: {best}{where}")
    columns: Columns = (
        ("reached", "reached", "text"),
        ("time_s", "simulated time", "time"),
        ("range", spread, "text"),
        ("time_median_s", "median", "time"),
        ("speed", f"speed, {spread}", "text"),
        ("client_updates", "client updates", "mean"),
        ("client_updates_per_h", "updates per hour", "number"),
        ("round", "rounds", "mean"),
        ("bytes", "data moved", "bytes"),
        ("compute_s", "client compute", "time"),
    )
    if frame["runs"].max() < INTERVAL_RUNS:  # The median of two runs would be the faster one.
        columns = [column for column in columns if column[0] != "time_median_s"]
    more = (name for name in SPENT if name in comparison.costs)
    none = f"{_NONE_LEAST}: {TOO_FEW}" if few else _NONE_LEAST
    none = none if len(known) else "no variant reached it in at least half of the runs"
    without = ""
    if frame["relative"].isna().all() and frame["time_s"].notna().any():
        without = f" There are no speeds relative to {comparison.baseline}: fewer than half of its runs reached it."
    return Figure(
        f"target-{number}",
        f"{sentence('; '.join(least) or none)}.{without}",
        _table(comparison, frame, (*columns, *more), merges=False),
        {
            "title": f"Time to {comparison.phrase(target)}",
            "note": f" {relative_speeds(comparison)}.",
            "spread": spread,
        },
    )


def relative_speeds(comparison: ComparisonTables) -> str:
    """What speeds are relative to, as a sentence without its period."""
    return f"Speeds are relative to {comparison.baseline}, over the seeds with which both reached the target"


def pairs(comparison: ComparisonTables) -> Figure | None:
    """Differences between variants per seed, with their range over few seeds instead of an interval."""
    quantities: dict[str, tuple[str, Kind]] = {
        f"time to {target}": (f"time to {comparison.phrase(target)}", "time")
        for target in comparison.goals
    }
    for metric in map(
        comparison.definition, () if comparison.is_stopped else comparison.main_metrics
    ):
        quantities[f"final {metric.name}"] = (f"final {metric.label}", metric.unit)
    frame = comparison.merged(comparison.pairs, "first", "second")
    frame = frame[frame["quantity"].isin(list(quantities)) & (frame["seeds"] > 0)]
    if not len(frame):
        return None
    spread, is_few = spread_over(*frame["seeds"]), frame[["seeds"]].to_numpy() <= FEW
    ends = ["low", "high"]
    frame[ends] = np.where(is_few, frame[["lowest", "highest"]], frame[ends])
    finding = f"Each {spread} is of one pair; of many, some exclude zero by chance, so they are not counted."
    if (frame["seeds"] == 1).all():
        finding = "The differences are those of one seed."
    elif len(frame) == 1:
        excludes = bool(((frame["low"] > 0) | (frame["high"] < 0)).all())
        finding = f"The {spread} of the difference {'excludes' if excludes else 'includes'} zero."

    def written(row: Mapping[Hashable, Any], key: str) -> str:
        return format_difference(row[key], quantities[row["quantity"]][1])

    rows = frame.to_dict("records")
    shown = frame.assign(
        quantity=[quantities[row["quantity"]][0] for row in rows],
        difference=[written(row, "difference") for row in rows],
        spread=[
            f"{comparison.before(row['seeds'])}{written(row, 'low')} to {written(row, 'high')}"
            if row["seeds"] > 1 and math.isfinite(row["low"])
            else ABSENT
            for row in rows
        ],
    )
    columns: Columns = (
        ("first", "first", "text"),
        ("second", "second", "text"),
        ("quantity", "quantity", "text"),
        ("difference", "first − second", "text"),
        ("spread", spread, "text"),
        ("seeds", "seeds", "count"),
        ("better", "seeds favoring first", "count"),
        ("same", "seeds equal", "count"),
    )
    table = _table(comparison, shown, columns, merges=False, names=_GROUP[:1])
    return Figure("pairs", finding, table, {"spread": spread})


def precision(comparison: ComparisonTables) -> Figure | None:
    """The seeds that each variant of a sweep needed; None if seeds were not added to a precision."""
    folder, *others = {facts.path.parent for facts in comparison.facts}
    if (
        others
        or not is_sweep(folder)
        or SWEEP_PRECISION not in (record := read_sweep(folder))["files"]
    ):
        return None
    SWEEP.require_intact(folder, record, SWEEP_PRECISION)
    frame = pd.read_csv(folder / SWEEP_PRECISION)
    rows = frame.to_dict("records")
    shown = frame.assign(
        needed=[
            f"more than {row['seeds']}" if math.isnan(row["needed"]) else f"{row['needed']:,.0f}"
            for row in rows
        ],
        interval=[format_interval(row["low"], row["high"], format_ratio) for row in rows],
        ratio=[format_ratio(ratio) for ratio in frame["ratio"]],
    )
    precise = int(frame["needed"].notna().sum())
    return Figure(
        "precision",
        f"{format_count(precise)} of {format_counted(len(frame), 'ratio')} to {frame['baseline'][0]} became as precise "
        "as wanted.",
        _table(comparison, shown, _PRECISION, merges=False),
    )


def reference_figure(
    comparison: ComparisonTables, table: ReferenceTable, number: int
) -> Figure | None:
    """A table of a paper next to our values; None if we have no runs for any of its values."""
    cells = {(setting, label): value for setting, label, value in table.cells()}
    settings, labels = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    if table.target is None:
        frame, column = comparison.summary, f"{table.quantity}_{table.metric}"
    else:
        frame, column = comparison.targets_of(Target.parse(table.target)), table.quantity
    values = frame.set_index(["setting", "label"]).get(column.replace("relative_time", "relative"))
    first = comparison.grouping.settings[0]
    ours = {} if values is None else values.to_dict()
    if all(ours.get((setting or first, label)) is None for setting, label in cells):
        return None
    metric = comparison.definition(table.metric)
    quantity: str
    kind: Kind | None  # None for ratios
    if table.quantity in ("final", "best"):
        quantity, kind = f"{table.quantity} {metric.label}", metric.unit
    elif table.quantity == "relative_time":
        quantity, kind = "time relative to the baseline", None
    else:
        quantity, kind = COSTS[table.quantity]
        kind = "mean" if kind == "count" else kind

    def written(value: Any, absent: str = ABSENT) -> str:
        if value is None or isinstance(value, str):
            return absent if value in (None, "-") else value
        return format_ratio(value) if kind is None else format_value(value, kind)

    columns = [Column("label", "variant", "text", labels)]
    for setting in settings:
        paper = f"{setting}: paper" if setting is not None else "paper"
        stated = [written(cells.get((setting, label))) for label in labels]
        run = [written(ours.get((setting or first, label)), "not run") for label in labels]
        columns.append(Column(f"paper {setting}", paper, "text", stated))
        columns.append(Column(f"ours {setting}", "ours", "text", run))
    at = f" to {comparison.phrase(Target.parse(table.target))}" if table.target else ""
    source = comparison.reference.source if comparison.reference else ""
    return Figure(
        f"reference-{number}",
        f"{sentence(quantity)}{at}: {source}, compared with these runs.",
        tuple(columns),
        {"title": table.title},
    )


def time_spent(comparison: ComparisonTables) -> Figure | None:
    """Client time by activity; None if no run has it: logs, and runs without a dispatch."""
    if not any(run.spent_s for run in comparison.facts) or comparison.spent.empty:
        return None
    key = ["setting", "label"]
    spent = comparison.spent.pivot(index=key, columns="part", values=["seconds", "share"])
    wide = comparison.summary[key].merge(spent["seconds"].reset_index(), how="left")
    parts = [
        phase
        for phase in PHASE_LABELS
        if phase in wide and (phase not in RARE_PHASES or wide[phase].any())
    ]
    order = list(comparison.shown)
    rows = spent["share"].reindex(order)[parts].fillna(0.0).to_numpy().tolist()
    bars = [
        {
            "label": name,
            "parts": list(zip(parts, map(PHASE_LABELS.get, parts), row, strict=True)),
        }
        for name, row in zip(_names(comparison), rows, strict=True)
    ]
    finding = "No client worked."
    if len(comparison.spent):
        idle = comparison.by_run(_unused)
        finding = f"Most client time spent waiting or idle: {ahead(idle, format_share)}."
    return Figure(
        "time",
        finding,
        _table(comparison, wide, [(phase, PHASE_LABELS[phase], "time") for phase in parts]),
        {"bars": bars, "parts": parts},
    )


def summaries(comparison: ComparisonTables) -> Iterator[Figure]:
    """Tables with the variants that are ahead: durations, work done and lost, edge servers, participation, and accuracy
    on the clients' own data. Without edge servers, or without that accuracy, theirs are left out."""
    frame, fairness = comparison.summary, comparison.fairness

    def summary(
        name: str, columns: Iterable[Described], ahead_in: str, words: str, **style: Any
    ) -> Figure:
        values = comparison.by_run(lambda run: run.figures[ahead_in])
        finding = f"{words}: {ahead(values, **style)}." if values["value"].any() else ""
        return Figure(name, finding, _table(comparison, frame, columns))

    yield Figure("durations", most_updates(comparison), _table(comparison, frame, _DURATIONS))
    work = (*_WORK, *(name for name in SPENT if frame[name].any()))
    words = "Most local steps in updates that never entered the model"
    yield summary("work", work, "lost_steps", words, written=format_share)
    if frame["backhaul_bytes"].notna().any():
        words, style = "Least data over the backhaul", {"written": format_bytes, "higher": False}
        yield summary("edges", EDGE_FIGURES, "backhaul_bytes", words, **style)
    words, style = "Most even participation, as Gini coefficient", {"written": "{:.2f}".format}
    yield summary("participation", _PARTICIPATION, "gini", words, higher=False, **style)
    if len(fairness):
        tenth = ahead(comparison.by_run(_worst_tenth), format_share)
        finding = f"Best mean accuracy of the worst tenth of the clients: {tenth}."
        yield Figure("fairness", finding, _table(comparison, fairness, _FAIRNESS))


def _unused(run: RunFacts) -> float:
    """Share of the client time of a run that was spent waiting or idle."""
    spent = pd.Series(run.spent_s, dtype=float)
    return (
        float(spent.reindex(["waiting", "idle"]).sum() / spent.sum()) if spent.any() else math.nan
    )


def _worst_tenth(run: RunFacts) -> float:
    measured = run.client_accuracy
    return over_clients(measured)["worst_tenth"] if len(measured) else math.nan


def _names(comparison: ComparisonTables) -> list[str]:
    """What the groups that have a curve are called where those of all settings stand together."""
    names = comparison.shown.items()
    return [f"{label} ({setting})" if setting else label for (setting, _), label in names]


def _by_group(comparison: ComparisonTables, curve: Callable[[Group], Floats]) -> list[Column]:
    """A column of shares per group that has a curve."""
    groups = (
        group for group in comparison.groups if tuple(group.names.values()) in comparison.shown
    )
    names = zip(_names(comparison), groups, strict=True)
    return [Column(name, name, "share", curve(group)) for name, group in names]


def lorenz(comparison: ComparisonTables) -> Figure:
    """How evenly the updates came from the clients."""
    curves = _by_group(
        comparison, lambda group: np.mean([run.lorenz for run in group.runs], axis=0)
    )
    return Figure(
        "lorenz",
        "The closer a curve is to the straight line, the more even the participation.",
        (Column("x", "share of clients", "share", LORENZ_AT), *curves),
    )


def client_accuracy(comparison: ComparisonTables) -> Figure | None:
    """Distribution of accuracy over clients; None if it was not measured."""
    if not len(comparison.fairness):
        return None

    def curve(group: Group) -> Floats:
        measured = [run.client_accuracy for run in group.runs if len(run.client_accuracy)]
        below = [cumulative(accuracies, ACCURACIES) for accuracies in measured]
        return np.mean(below, axis=0) if below else np.full(len(ACCURACIES), np.nan)

    return Figure(
        "client_accuracy",
        "The further right a curve is, the higher the accuracy of its clients.",
        (Column("x", "accuracy at most", "share", ACCURACIES), *_by_group(comparison, curve)),
    )


KEYS_SHOWN = 10
"""Maximum number of differing keys that are listed; more are folded by section."""


def differences(comparison: ComparisonTables) -> Figure | None:
    """Differences between the scenarios."""
    by_name = by_section(comparison.grouping.differing)
    if not by_name:
        return None
    paths = [path for inside in by_name.values() for path in inside]
    names = [group.name for group in comparison.groups]
    written = (
        with_units(dict(flattened(group.runs[0].scenario)), paths) for group in comparison.groups
    )
    texts = [
        ["none" if (value := values.get(path, ABSENT)) is None else str(value) for path in paths]
        for values in written
    ]
    differ = "differs" if len(paths) == 1 else "differ"
    finding = f"{format_counted(len(paths), 'key')} {differ}, apart from the seed."
    if len(paths) < min(len(names), KEYS_SHOWN):  # A row per key would be wider.
        cells = zip(paths, zip(*texts, strict=True), strict=True)
        keys = (Column(path, path, "text", values) for path, values in cells)
        return Figure("differences", finding, (Column("label", "variant", "text", names), *keys))
    columns = [Column("path", "key", "text", list(paths))]
    for number, (name, values) in enumerate(zip(names, texts, strict=True)):
        columns.append(Column(f"group{number}", name, "text", values))
    sections: list[dict[str, Any]] = []
    end = 0
    for name, inside in by_name.items():
        begin, end = end, end + len(inside)
        shown = end <= KEYS_SHOWN or not sections
        sections.append({"name": name, "begin": begin, "end": end, "open": shown})
    return Figure("differences", finding, tuple(columns), {"sections": sections})


def runs(comparison: ComparisonTables) -> Figure:
    """The runs that were compared."""
    metrics = map(comparison.definition, () if comparison.is_stopped else comparison.metrics[:1])
    finals: list[Described] = [
        (f"final_{metric.name}", f"final {metric.label}", metric.unit) for metric in metrics
    ]
    columns: list[Described] = [("seed", "seed", "text"), "simulated_s", "wall_s", *finals]
    columns.append(("run", "folder", "text"))
    frame = comparison.runs.astype({"seed": str})
    return Figure(
        "runs",
        f"{format_counted(len(frame), 'complete run')} in {format_counted(len(comparison.groups), 'group')}.",
        _table(comparison, frame, columns, merges=False),
    )
