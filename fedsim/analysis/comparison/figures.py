"""The figures of the comparison page: the tables of a comparison as columns, and the sentences around them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.facts import COSTS, LORENZ_AT, PERCENTILES, SPENT
from fedsim.analysis.comparison.findings import ahead
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.comparison.headline import best_at_the_end, most_updates, on, targets_in_order
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import FEW, INTERVAL_RUNS, Target
from fedsim.analysis.figures.base import Column, Columns, Figure, columns_of, sentence
from fedsim.analysis.figures.time import PHASE_LABELS, RARE_PHASES
from fedsim.runs.records import SWEEP_PRECISION
from fedsim.scenario.comparing import by_section
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
    format_ratio,
    format_share,
    format_value,
)

ACCURACIES = np.arange(41) / 40
_NOT_RUN = "not run"


def _percentile(percent: int) -> str:
    return "median" if percent == 50 else f"{percent}%"


_WORK: Columns = (
    ("dispatches", "dispatches", "mean"),
    ("lost_dispatches", "lost", "share"),
    ("lost_steps", "steps lost", "share"),
    ("bytes", "data moved", "bytes"),
    ("lost_bytes", "data lost", "share"),
    ("compute_s", "client compute", "time"),
    ("lost_seconds", "client time lost", "share"),
    ("energy_j", "energy", "energy"),
)
_DURATIONS: Columns = (
    ("client_updates_per_h", "client updates per hour", "number"),
    ("interval_s", "per server update, mean", "time"),
    *(
        (f"interval_p{percent}_s", f"per server update, {_percentile(percent)}", "time")
        for percent in PERCENTILES
    ),
    *(
        (f"turnaround_p{percent}_s", f"dispatch to arrival, {_percentile(percent)}", "time")
        for percent in PERCENTILES
    ),
)
_PARTICIPATION: Columns = (
    ("updates", "server updates", "mean"),
    ("per_update", "client updates per server update", "number"),
    ("contributed", "clients that contributed", "share"),
    ("gini", "Gini coefficient", "number"),
    ("staleness_mean", "mean staleness", "number"),
    ("staleness_max", "largest", "mean"),
    ("age_s", "age of updates", "time"),
    ("tau_avg", "mean delay τ", "number"),
    ("tau_max", "largest τ", "mean"),
)
_EDGES: Columns = (
    ("backhaul_bytes", "data over the backhaul", "bytes"),
    ("edge_rounds", "rounds of edge servers", "mean"),
    ("edge_gini", "Gini coefficient", "number"),
    ("edge_worst", "accuracy at the worst", "share"),
    ("edge_spread", "spread", "share"),
)
_PRECISION: Columns = (
    ("setting", "setting", "text"),
    ("label", "variant", "text"),
    ("ratio", "ratio to the baseline", "text"),
    ("interval", "95% interval", "text"),
    ("needed", "seeds needed", "text"),
    ("seeds", "seeds run", "count"),
    ("missed", "missed the target", "count"),
)
_PAIRS: Columns = (
    ("setting", "setting", "text"),
    ("first", "first", "text"),
    ("second", "second", "text"),
    ("quantity", "quantity", "text"),
    ("difference", "first − second", "text"),
    ("range", "95% interval", "text"),
    ("seeds", "seeds", "count"),
    ("better", "seeds favoring first", "count"),
    ("same", "seeds equal", "count"),
)
_TARGET: Columns = (
    ("reached", "reached", "text"),
    ("time_s", "simulated time", "time"),
    ("time_median_s", "median", "time"),
    ("speed", "speed", "text"),
    ("client_updates", "client updates", "mean"),
    ("client_updates_per_h", "updates per hour", "number"),
    ("round", "rounds", "mean"),
    ("bytes", "data moved", "bytes"),
    ("compute_s", "client compute", "time"),
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


def _table(
    comparison: ComparisonTables, frame: pd.DataFrame, columns: Columns, *, merges: bool = True
) -> tuple[Column, ...]:
    """Columns of a frame, after those with the group of each row; the setting only if there are several.

    If it ``merges``, variants with identical results are one row.
    """
    frame = comparison.merged(frame) if merges else frame
    names: Columns = (("setting", "setting", "text"), ("label", "variant", "text"))
    if len(comparison.grouping.settings) == 1:
        names = names[1:]
    return columns_of(frame, [*names, *columns])


def first_to(comparison: ComparisonTables) -> Figure | None:
    """The time of every run to the target of the headline, variants from the fastest to the slowest; None without one.

    ``rows`` of ``extra`` are for a picture: places on a logarithmic axis, from 0 to 1. Variants with identical results
    are one row.
    """
    goals = targets_in_order(comparison)
    if not goals or comparison.targets_of(goals[0])["time_s"].isna().all():
        return None
    goal, base, few = goals[0], comparison.baseline, comparison.is_few
    standings = comparison.standings(goal)
    places = {
        label: number for number, label in enumerate(dict.fromkeys(comparison.shown.values()))
    }
    every = np.concatenate(standings["seeds_s"].tolist())
    if not (every > 0).any():  # The initial model meets the target.
        return None
    low, high = float(every[every > 0].min()), float(every.max())
    low, high = (low / 1.1, high * 1.1) if low < high else (low / 2, high * 2)

    def place(seconds: float) -> float:
        return float(np.clip(math.log(max(seconds, low) / low) / math.log(high / low), 0, 1))

    rows: list[dict[str, Any]] = []
    for row in standings.to_dict("records"):
        ends, good = (row["low_s"], row["high_s"]), math.isfinite(row["time_s"])
        rows.append(
            {
                "setting": row["setting"],
                "label": row["label"],
                "look": places[row["label"]],
                "reached": f"{row['reached']} of {row['runs']}",
                "time_s": row["time_s"],
                "range": format_interval(*ends, format_duration),
                "speed": _speed(comparison, row),
                "seeds": [place(each) for each in row["seeds_s"]] if good else [],
                "ends": [place(each) for each in ends] if math.isfinite(ends[0]) else [],
                "mean": place(row["time_s"]) if good else None,
            }
        )
    columns: Columns = (
        ("reached", "reached", "text"),
        ("time_s", "mean time", "time"),
        ("range", spread_word(comparison), "text"),
        ("speed", f"speed relative to {base}", "text"),
    )
    marks: list[float] = [s for s in _ROUND_S if low <= s <= high]
    marks = marks or [low * 1.1, high / 1.1]
    ticks = [(place(s), format_duration(s)) for s in marks[:: math.ceil(len(marks) / 6)]]
    title = f"Time to {comparison.phrase(goal)}"
    return Figure(
        "first",
        title,
        _table(comparison, pd.DataFrame(rows), columns, merges=False),
        {"rows": rows, "ticks": ticks, "title": title, "few": few},
    )


_ROUND_S = sorted(
    {m * unit for unit in (1, 60, 3600, 86400) for m in (1, 2, 3, 5, 7, 10, 14, 20, 30)}
)


def _speed(comparison: ComparisonTables, row: Mapping[Hashable, Any]) -> str:
    """The speed of a row of the standings in words: ``13 times as fast, 9 to 20``."""
    if not math.isfinite(row["speed"]):
        return ABSENT
    if comparison.baseline in row["label"].split(" = "):
        return "baseline"
    low, high = row["speed_low"], row["speed_high"]
    spread = f", {low:.3g} to {high:.3g}" if math.isfinite(low) else ""
    return f"{row['speed']:.3g} times as fast{spread}"


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


def target_figure(comparison: ComparisonTables, target: Target, number: int) -> Figure:
    """The times at which groups reached a target, with the sentences on it."""
    frame = comparison.standings(target)
    ends = zip(frame["low_s"], frame["high_s"], strict=True)
    shown = frame.assign(
        reached=[f"{k} of {n}" for k, n in zip(frame["reached"], frame["runs"], strict=True)],
        time_range=[format_interval(low, high, format_duration) for low, high in ends],
        speed=[_speed(comparison, row) for row in frame.to_dict("records")],
    )
    spent = [(name, *words) for name, words in SPENT.items() if name in comparison.costs]
    without = ""
    if frame["relative"].isna().all() and frame["time_s"].notna().any():
        without = f" There are no speeds relative to {comparison.baseline}, which did not reach it."
    columns = (*_TARGET[:2], ("time_range", spread_word(comparison), "text"), *_TARGET[2:])
    return Figure(
        f"target-{number}",
        f"{' '.join(on(comparison, target))}{without}",
        _table(comparison, shown, (*columns, *spent), merges=False),
        {
            "title": f"Time to {comparison.phrase(target)}",
            "note": f" {relative_speeds(comparison)}.",
            "few": comparison.is_few,
        },
    )


def spread_word(comparison: ComparisonTables) -> str:
    """What the spread of times over seeds is called."""
    return "range" if comparison.is_few else "95% interval"


def relative_speeds(comparison: ComparisonTables) -> str:
    """What speeds are relative to, as a sentence without its period."""
    return f"Speeds are relative to {comparison.baseline}, over the seeds with which both reached the target"


def _small_sample(comparison: ComparisonTables) -> str:
    """A sentence on intervals of few seeds; empty if there are enough."""
    if not comparison.is_few:
        return ""
    return (
        f"With {INTERVAL_RUNS} to {FEW} seeds an interval is little more than the range of the runs, "
        "and with fewer there is none. "
    )


def pairs(comparison: ComparisonTables) -> Figure | None:
    """Differences between variants per seed."""
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
    clear = (frame["low"] > 0) | (frame["high"] < 0)
    finding = "Intervals are of one pair each; of many, some exclude zero by chance, so they are not counted."
    if len(frame) == 1:
        finding = (
            f"The interval of the difference {'excludes' if clear.all() else 'includes'} zero."
        )

    def written(row: Mapping[Hashable, Any], key: str) -> str:
        return format_difference(row[key], quantities[row["quantity"]][1])

    rows = frame.to_dict("records")
    shown = frame.assign(
        quantity=[quantities[row["quantity"]][0] for row in rows],
        difference=[written(row, "difference") for row in rows],
        range=[
            f"{written(row, 'low')} to {written(row, 'high')}"
            if math.isfinite(row["low"])
            else ABSENT
            for row in rows
        ],
    )
    return Figure(
        "pairs",
        finding,
        columns_of(shown, _PAIRS if len(comparison.grouping.settings) > 1 else _PAIRS[1:]),
        {"note": f" {_small_sample(comparison)}"},
    )


def precision(comparison: ComparisonTables) -> Figure | None:
    """The seeds that each variant of a sweep needed; None if seeds were not added to a precision."""
    files = {facts.path.parent / SWEEP_PRECISION for facts in comparison.facts}
    if len(files) > 1 or not (file := files.pop()).exists():
        return None
    frame = pd.read_csv(file)
    needed = [
        f"more than {seeds}" if math.isnan(count) else format_count(int(count))
        for count, seeds in zip(frame["needed"], frame["seeds"], strict=True)
    ]
    ends = zip(frame["low"], frame["high"], strict=True)
    intervals = [format_interval(low, high, format_ratio) for low, high in ends]
    ratios = [format_ratio(ratio) for ratio in frame["ratio"]]
    shown = frame.assign(needed=needed, interval=intervals, ratio=ratios)
    precise = int(frame["needed"].notna().sum())
    columns = _PRECISION if frame["setting"].nunique() > 1 else _PRECISION[1:]
    return Figure(
        "precision",
        f"{format_count(precise)} of {format_counted(len(frame), 'ratio')} to {frame['baseline'][0]} became as precise "
        "as wanted.",
        columns_of(shown, columns),
    )


def reference_figure(
    comparison: ComparisonTables, table: ReferenceTable, number: int
) -> Figure | None:
    """A table of a paper next to our values; None if we have no runs for any of its values."""
    cells = {(setting, label): value for setting, label, value in table.cells()}
    settings, labels = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    ours = {
        (setting, label): _our_value(comparison, table, setting, label)
        for setting in settings
        for label in labels
    }
    if all(ours[cell] is None for cell in cells):
        return None
    metric = comparison.definition(table.metric)
    quantity, kind = _quantity(table, metric.label, metric.unit)

    def written(value: Any) -> str:
        if value is None or isinstance(value, str):
            return ABSENT if value in (None, "-") else value
        return format_ratio(value) if kind is None else format_value(value, kind)

    columns = [Column("label", "variant", "text", labels)]
    for setting in settings:
        paper = f"{setting}: paper" if setting is not None else "paper"
        stated = [written(cells.get((setting, label))) for label in labels]
        values = [ours[setting, label] for label in labels]
        run = [_NOT_RUN if value is None else written(value) for value in values]
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


def _our_value(
    comparison: ComparisonTables, table: ReferenceTable, setting: str | None, label: str
) -> float | None:
    """The value of our runs that corresponds to one in a paper's table; None if there are no such runs."""
    if table.target is None:
        frame, column = comparison.summary, f"{table.quantity}_{table.metric}"
    else:
        frame, column = comparison.targets_of(Target.parse(table.target)), table.quantity
    names = comparison.grouping.settings[0] if setting is None else setting, label
    values = frame.set_index(["setting", "label"]).get(column.replace("relative_time", "relative"))
    return None if values is None else values.get(names)


def _quantity(table: ReferenceTable, label: str, unit: Kind) -> tuple[str, Kind | None]:
    """Name and kind of a paper's values; no kind for ratios."""
    if table.quantity in ("final", "best"):
        return f"{table.quantity} {label}", unit
    if table.quantity == "relative_time":
        return "time relative to the baseline", None
    name, kind = COSTS[table.quantity]
    return name, "mean" if kind == "count" else kind


def time_spent(comparison: ComparisonTables) -> Figure:
    """Client time by activity."""
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
        idle = comparison.spent[comparison.spent["part"].isin(["waiting", "idle"])]
        idle = idle.groupby(["setting", "label"], sort=False)["share"].sum().reset_index()
        finding = f"Most client time spent waiting or idle: {ahead(idle, 'share', format_share)}."
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
    spent = [(name, *words) for name, words in SPENT.items() if frame[name].any()]

    def summary(
        name: str, table: pd.DataFrame, columns: Columns, ahead_in: str, words: str, **style: Any
    ) -> Figure:
        finding = f"{words}: {ahead(table, ahead_in, **style)}."
        return Figure(name, finding, _table(comparison, table, columns))

    yield Figure("durations", most_updates(comparison), _table(comparison, frame, _DURATIONS))
    work = (*_WORK, *spent)
    words = "Most local steps in updates that never entered the model"
    yield summary("work", frame, work, "lost_steps", words, written=format_share)
    if frame["backhaul_bytes"].notna().any():
        style = {"written": format_bytes, "higher": False}
        words = "Least data over the backhaul"
        yield summary("edges", frame, _EDGES, "backhaul_bytes", words, **style)
    style = {"written": "{:.2f}".format, "higher": False}
    words = "Most even participation, as Gini coefficient"
    yield summary("participation", frame, _PARTICIPATION, "gini", words, **style)
    if len(fairness):
        words = "Best mean accuracy of the worst tenth of the clients"
        yield summary("fairness", fairness, _FAIRNESS, "worst_tenth", words, written=format_share)


def _drawn(comparison: ComparisonTables) -> list[Group]:
    """The groups that have a curve."""
    return [
        group for group in comparison.groups if (group.setting, group.label) in comparison.shown
    ]


def _names(comparison: ComparisonTables) -> list[str]:
    """What the groups that have a curve are called where those of all settings stand together."""
    names = comparison.shown.items()
    return [f"{label} ({setting})" if setting else label for (setting, _), label in names]


def _by_group(comparison: ComparisonTables, curves: list[Any]) -> Iterator[Column]:
    """A column of shares per group that has a curve."""
    for name, curve in zip(_names(comparison), curves, strict=True):
        yield Column(name, name, "share", curve)


def lorenz(comparison: ComparisonTables) -> Figure:
    """How evenly the updates came from the clients."""
    curves = [np.mean([run.lorenz for run in group.runs], axis=0) for group in _drawn(comparison)]
    return Figure(
        "lorenz",
        "The closer a curve is to the straight line, the more even the participation.",
        (Column("x", "share of clients", "share", LORENZ_AT), *_by_group(comparison, curves)),
    )


def client_accuracy(comparison: ComparisonTables) -> Figure | None:
    """Distribution of accuracy over clients; None if it was not measured."""
    if not len(comparison.fairness):
        return None
    curves = []
    for group in _drawn(comparison):
        measured = [np.sort(run.client_accuracy) for run in group.runs if len(run.client_accuracy)]
        below = [np.searchsorted(run, ACCURACIES, side="right") / len(run) for run in measured]
        curves.append(np.mean(below, axis=0) if below else np.full(len(ACCURACIES), np.nan))
    return Figure(
        "client_accuracy",
        "The further right a curve is, the higher the accuracy of its clients.",
        (Column("x", "accuracy at most", "share", ACCURACIES), *_by_group(comparison, curves)),
    )


KEYS_SHOWN = 10
"""Maximum number of differing keys that are listed; more are folded by section."""


def differences(comparison: ComparisonTables) -> Figure | None:
    """Differences between the scenarios."""
    by_name = by_section(comparison.grouping.differing)
    if not by_name:
        return None
    paths = [path for inside in by_name.values() for path in inside]
    columns = [Column("path", "key", "text", list(paths))]
    for number, group in enumerate(comparison.groups):
        values = [group.values.get(path, ABSENT) for path in paths]
        texts = ["none" if value is None else str(value) for value in values]
        columns.append(Column(f"group{number}", group.name, "text", texts))
    differ = "differs" if len(paths) == 1 else "differ"
    finding = f"{format_counted(len(paths), 'key')} {differ}, apart from the seed."
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
    columns: Columns = (
        ("seed", "seed", "text"),
        ("simulated_s", "simulated", "time"),
        ("wall_s", "wall time", "time"),
        *((f"final_{metric.name}", f"final {metric.label}", metric.unit) for metric in metrics),
        ("run", "folder", "text"),
    )
    frame = comparison.runs.astype({"seed": str})
    return Figure(
        "runs",
        f"{format_counted(len(frame), 'complete run')} in {format_counted(len(comparison.groups), 'group')}.",
        _table(comparison, frame, columns, merges=False),
    )
