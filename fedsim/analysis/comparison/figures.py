"""The figures of the comparison page: the numbers behind each, what they say, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.comparison import Comparison, same_results
from fedsim.analysis.comparison.curves import curve, grid
from fedsim.analysis.comparison.facts import LORENZ_AT
from fedsim.analysis.comparison.groups import Group
from fedsim.analysis.comparison.reference import ReferenceTable
from fedsim.analysis.comparison.targets import INTERVAL_RUNS, Target
from fedsim.analysis.figures.base import Column, Figure, Kind
from fedsim.analysis.figures.time import PHASE_LABELS
from fedsim.analysis.text import (
    best_of,
    count_text,
    duration_text,
    is_share,
    listed_text,
    metric_label,
    metric_text,
    percent_text,
)
from fedsim.runs.targets import higher_is_better

AGAINST: dict[str, tuple[str, Kind]] = {
    "time_s": ("simulated time", "time"),
    "round": ("rounds", "count"),
    "version": ("server updates", "count"),
    "bytes": ("data moved", "bytes"),
    "compute_s": ("client compute time", "time"),
}
ACCURACIES = np.arange(41) / 40
_NOT_RUN = "not run"
_FEW_RUNS = 5

_QUANTITIES: dict[str, tuple[str, Kind]] = {
    "relative_time": ("time relative to the baseline", "number"),
    "time_s": ("simulated time", "time"),
    "compute_s": ("client compute time", "time"),
    "bytes": ("data moved", "bytes"),
    "round": ("rounds", "number"),
    "version": ("server updates", "number"),
}


def metric_kind(metric: str) -> Kind:
    """How the values of a metric are written."""
    return "share" if is_share(metric) else "number"


def _who(comparison: Comparison, frame: pd.DataFrame) -> list[Column]:
    """The columns that say which group a row is of; the setting only where there are several."""
    columns = [Column("label", "variant", "text", frame["label"].tolist())]
    if len(comparison.grouping.settings) > 1:
        columns.insert(0, Column("setting", "setting", "text", frame["setting"].tolist()))
    return columns


def _extreme(frame: pd.DataFrame, key: str, *, largest: bool) -> pd.Series[Any]:
    """The row with the largest (or smallest) value that is known."""
    known = frame[key].to_numpy(dtype=np.float64)
    place = np.nanargmax(known) if largest else np.nanargmin(known)
    return frame.iloc[int(place)]


def _leader(frame: pd.DataFrame, key: str, written: Callable[[float], str]) -> str:
    """Who has the largest value, as it is written; nobody (an empty text) where all are alike."""
    row = _extreme(frame, key, largest=True)
    if frame[key].map(written).nunique() == 1 < len(frame):
        return ""
    return _named(row)


def _named(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """A variant and, where there are several, its setting."""
    return f"{row['label']} in {row['setting']}" if row["setting"] else str(row["label"])


def _firsts(known: pd.DataFrame) -> pd.DataFrame:
    """Who reached a target first: several where no evaluation tells them apart; of those, whoever did in most runs."""
    first = known[known["time_s"] == known["time_s"].min()]
    share = first["reached"] / first["runs"]
    often: pd.DataFrame = first[share == share.max()]
    return often


def _reached_by(row: pd.Series[Any]) -> str:
    """How many runs a time stands for, where that is not all of them: a mean over the lucky ones flatters."""
    return "" if row["reached"] == row["runs"] else f" ({row['reached']} of {row['runs']} runs)"


def asked(comparison: Comparison) -> tuple[str, ...]:
    """The metrics that the reader asks about: those of the targets, or the first."""
    return tuple(dict.fromkeys(goal.metric for goal in comparison.goals)) or comparison.metrics[:1]


def _small_sample(comparison: Comparison) -> str:
    """What intervals are worth with so few seeds; empty where there are enough."""
    runs = min(len(group.runs) for group in comparison.groups)
    if runs < INTERVAL_RUNS:
        return f" An interval takes {INTERVAL_RUNS} runs at least."
    if runs <= _FEW_RUNS:
        return f" With {runs} seeds an interval is hardly more than the range of the runs."
    return ""


def _ranges(frame: pd.DataFrame, low: str, high: str, written: Callable[[float], str]) -> list[str]:
    """Intervals as text, a dash where there is none."""
    return [
        f"{written(a)} to {written(b)}" if math.isfinite(a) else "–"
        for a, b in zip(frame[low], frame[high], strict=True)
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×" if math.isfinite(ratio) else "–"


def _column(frame: pd.DataFrame, key: str, label: str, kind: Kind) -> Column:
    return Column(key, label, kind, frame[key].tolist())


def curves_data(comparison: Comparison) -> dict[str, Any]:
    """Every metric against every cost, by setting, for the chart of curves."""
    settings: dict[str, Any] = {}
    for setting in comparison.grouping.settings:
        groups = comparison.grouping.of(setting)
        settings[setting] = {
            metric: {against: _curves(groups, metric, against) for against in AGAINST}
            for metric in comparison.metrics
        }
    return {
        "metrics": [
            {"key": name, "label": metric_label(name), "kind": metric_kind(name)}
            for name in comparison.metrics
        ],
        "against": [
            {"key": key, "label": label, "kind": kind} for key, (label, kind) in AGAINST.items()
        ],
        "settings": settings,
    }


def _curves(groups: Sequence[Group], metric: str, against: str) -> dict[str, Any]:
    places = grid(groups, metric, against)
    drawn = [curve(group, metric, against, places) for group in groups]
    return {
        "x": places,
        "groups": [{"mean": each.mean, "low": each.low, "high": each.high} for each in drawn],
    }


def learning(comparison: Comparison) -> Figure | None:
    """Head of the chart of curves; its numbers are those of :func:`curves_data`."""
    if not comparison.metrics:
        return None
    metric = comparison.metrics[0]
    frame = comparison.summary
    final = f"final_{metric}"
    best = frame.iloc[0]
    if frame[final].notna().any():
        best = _extreme(frame, final, largest=higher_is_better(metric))
    where = f" in {best['setting']}" if best["setting"] else ""
    several = int(frame["runs"].max()) > 1
    alike = frame[final].nunique(dropna=False) == 1 < len(frame)
    return Figure(
        "curves",
        "How good the model was, and when",
        f"{'All ended alike' if alike else str(best['label']) + ' ended best' + where}: "
        f"{metric_text(metric, best[final])} {metric_label(metric)}{' on average over seeds' if several else ''}.",
        "Lines are means over seeds, bands one standard deviation; between evaluations, and after a run's last one, "
        "its last value counts.",
        (),
    )


def quality(comparison: Comparison) -> Figure | None:
    """The last and the best values of every metric."""
    if not comparison.metrics:
        return None
    frame = comparison.summary
    columns = [*_who(comparison, frame), _column(frame, "runs", "runs", "count")]
    for name in comparison.metrics:
        ends = [
            metric_text(name, mean) + (f" ± {metric_text(name, sd)}" if math.isfinite(sd) else "")
            for mean, sd in zip(frame[f"final_{name}"], frame[f"final_{name}_sd"], strict=True)
        ]
        label = metric_label(name)
        columns += [
            Column(f"final_{name}", f"final {label}", "text", ends),
            _column(frame, f"best_{name}", f"best {label}", metric_kind(name)),
        ]
    return Figure(
        "quality",
        "How good the model became",
        f"Final values of {count_text(len(comparison.facts))} runs, averaged over seeds.",
        "Final is each run's last evaluation, with its standard deviation over seeds; best is each run's best one.",
        tuple(columns),
    )


def target_figure(comparison: Comparison, target: Target, number: int) -> Figure:
    """When each group reached a target."""
    every = comparison.targets
    frame = every[(every["metric"] == target.metric) & (every["target"] == target.value)]
    reached = [f"{k} of {n}" for k, n in zip(frame["reached"], frame["runs"], strict=True)]
    shown = frame["time_s"].notna()
    if shown.any():
        firsts = _firsts(frame[shown])
        first = firsts.iloc[0]
        after = f"after {duration_text(first['time_s'])}{_reached_by(first)}"
        if len(firsts) == 1:
            where = f" in {first['setting']}" if first["setting"] else ""
            finding = f"{first['label']} was first{where}, {after}."
        elif len(firsts) == len(frame):
            finding = f"All reached it {after}: a tie, as far as the evaluations tell."
        else:
            names = [_named(row) for row in firsts.to_dict("records")]
            finding = f"{listed_text(names)} were first, {after}: they tie, as far as the evaluations tell."
        silent = int((~shown).sum())
        if silent:
            finding += f" {count_text(silent)} of {count_text(len(frame))} did not reach it in half of their runs."
        if frame["relative"].isna().all():
            finding += f" {comparison.baseline}, the baseline, is one of them: there are no relative times."
    else:
        finding = "None reached it in half of its runs."
    top = (
        float(np.nanmax(frame[["time_s", "time_high_s", "time_median_s"]])) if shown.any() else 1.0
    )
    ranges = [
        {"low": low, "mean": mean, "high": high}
        for low, mean, high in zip(
            frame["time_low_s"] / top,
            frame["time_s"] / top,
            frame["time_high_s"] / top,
            strict=True,
        )
    ]
    return Figure(
        f"target-{number}",
        f"Time to {target.title}",
        finding,
        "Means over the runs that reached it, with the 95% bootstrap interval over seeds; the median is when half "
        f"of all runs had. A dash stands where fewer than half did.{_small_sample(comparison)} "
        f"Relative times are to {comparison.baseline}.",
        (
            *_who(comparison, frame),
            Column("reached", "reached", "text", reached),
            _column(frame, "time_s", "simulated time", "time"),
            Column(
                "time_range",
                "95% interval",
                "text",
                _ranges(frame, "time_low_s", "time_high_s", duration_text),
            ),
            _column(frame, "time_median_s", "median", "time"),
            Column("relative", "relative", "text", list(map(_times, frame["relative"]))),
            Column(
                "relative_range",
                "95% interval",
                "text",
                _ranges(frame, "relative_low", "relative_high", _times),
            ),
            _column(frame, "round", "rounds", "number"),
            _column(frame, "bytes", "data moved", "bytes"),
            _column(frame, "compute_s", "client compute", "time"),
        ),
        {"ranges": ranges},
    )


def pairs(comparison: Comparison) -> Figure | None:
    """Differences between variants, seed by seed."""
    frame = comparison.pairs
    kept = [f"time to {target}" for target in comparison.goals]
    kept += [f"final {name}" for name in asked(comparison)]
    frame = frame[frame["quantity"].isin(kept) & (frame["seeds"] > 0)]
    if not len(frame):
        return None
    clear = int(((frame["low"] > 0) | (frame["high"] < 0)).sum())
    finding = (
        f"{count_text(clear)} of {count_text(len(frame))} differences have an interval that does not contain zero."
        if frame["low"].notna().any()
        else f"Fewer than {INTERVAL_RUNS} seeds: there are no intervals, and what differs may differ by chance."
    )
    fewest = int(frame["seeds"].min())
    chance = (
        f" With {fewest} seeds an interval without zero says little more than that all of them agree, as they do by "
        f"chance in one pair of {2 ** (fewest - 1)}."
        if INTERVAL_RUNS <= fewest <= _FEW_RUNS
        else ""
    )
    titles = {f"time to {target}": f"time to {target.title}" for target in comparison.goals}
    titles |= {f"final {name}": f"final {metric_label(name)}" for name in comparison.metrics}

    def written(row: Mapping[Hashable, Any], key: str) -> str:
        value, quantity = float(row[key]), str(row["quantity"])
        if not math.isfinite(value):
            return "–"
        sign = "+" if value > 0 else "−" if value < 0 else "±"
        if quantity.startswith("time"):
            return sign + duration_text(abs(value))
        metric = quantity.removeprefix("final ")
        if is_share(metric):
            return f"{sign}{100 * abs(value):.1f} pp"
        return sign + metric_text(metric, abs(value))

    def ranged(row: Mapping[Hashable, Any]) -> str:
        low, high = written(row, "low"), written(row, "high")
        return "–" if low == high == "–" else f"{low} to {high}"

    rows = frame.to_dict("records")
    columns = [
        Column("first", "first", "text", frame["first"].tolist()),
        Column("second", "second", "text", frame["second"].tolist()),
        Column("quantity", "quantity", "text", [titles[row["quantity"]] for row in rows]),
        Column("seeds", "seeds", "count", frame["seeds"].tolist()),
        Column("difference", "first − second", "text", [written(r, "difference") for r in rows]),
        Column("range", "95% interval", "text", [ranged(row) for row in rows]),
        Column("better", "first better in", "count", frame["better"].tolist()),
        Column("same", "equal in", "count", frame["same"].tolist()),
    ]
    if len(comparison.grouping.settings) > 1:
        columns.insert(0, Column("setting", "setting", "text", frame["setting"].tolist()))
    return Figure(
        "pairs",
        "Differences, seed by seed",
        finding,
        "Runs of one seed live through the same days (common random numbers), so differences are taken seed by seed: "
        "mean and 95% bootstrap interval over seeds; pp are percentage points. Times count the seeds in which both "
        f"reached the target; pairs without one are left out.{chance}",
        tuple(columns),
    )


def was_run(comparison: Comparison, table: ReferenceTable) -> bool:
    """Whether there are runs beside any value of a paper's table."""
    return any(
        _ours(comparison, table, setting, label) != _NOT_RUN for setting, label, _ in table.cells()
    )


def reference_figure(comparison: Comparison, table: ReferenceTable, number: int) -> Figure:
    """A table of a paper beside our own figures."""
    labels: dict[str, None] = {}
    settings: dict[str | None, None] = {}
    theirs: dict[tuple[str | None, str], Any] = {}
    for setting, label, value in table.cells():
        labels[label] = settings[setting] = None
        theirs[setting, label] = value
    columns = [Column("label", "variant", "text", list(labels))]
    for setting in settings:
        ours = [_ours(comparison, table, setting, label) for label in labels]
        title = f"{setting}: " if setting is not None else ""
        columns += [
            Column(
                f"paper {setting}",
                f"{title}paper",
                "text",
                [_stated(table, theirs.get((setting, label))) for label in labels],
            ),
            Column(f"ours {setting}", "ours", "text", ours),
        ]
    what = (
        _QUANTITIES[table.quantity][0]
        if table.quantity in _QUANTITIES
        else f"{table.quantity} {metric_label(table.metric)}"
    )
    at = f" to {Target.parse(table.target).title}" if table.target else ""
    source = comparison.reference.source if comparison.reference else ""
    return Figure(
        f"reference-{number}",
        table.title,
        f"{what.capitalize()}{at}: {source}, beside these runs.",
        "A dash stands where the target was not reached in half of the runs, or the paper has no value; "
        "“not run” where there are no such runs here.",
        tuple(columns),
    )


def _stated(table: ReferenceTable, value: Any) -> str:
    if value is None or value in ("-", "–"):
        return "–"
    return value if isinstance(value, str) else _written(table, float(value))


def _written(table: ReferenceTable, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if table.quantity in ("final", "best"):
        return metric_text(table.metric, value)
    if table.quantity == "relative_time":
        return f"{value:.2f}×"
    if table.quantity in ("time_s", "compute_s"):
        return duration_text(value)
    return f"{value:,.4g}" if table.quantity == "bytes" else f"{value:,.1f}"


def _ours(comparison: Comparison, table: ReferenceTable, setting: str | None, label: str) -> str:
    place = setting if setting is not None else comparison.grouping.settings[0]

    def row_of(frame: pd.DataFrame) -> Any:
        found = frame[(frame["setting"] == place) & (frame["label"] == label)]
        return found.iloc[0] if len(found) else None

    if table.quantity in ("final", "best"):
        row = row_of(comparison.summary)
        name = f"{table.quantity}_{table.metric}"
        return _NOT_RUN if row is None or name not in row else _written(table, float(row[name]))
    assert table.target is not None
    target = Target.parse(table.target)
    if target not in comparison.goals:
        return _NOT_RUN
    every = comparison.targets
    row = row_of(every[(every["metric"] == target.metric) & (every["target"] == target.value)])
    if row is None:
        return _NOT_RUN
    column = "relative" if table.quantity == "relative_time" else table.quantity
    return _written(table, float(row[column]))


def time_spent(comparison: Comparison) -> Figure:
    """Client time by what it went into."""
    frame = comparison.spent
    names = comparison.summary[["setting", "label"]]
    wide = names.merge(
        frame.pivot(index=["setting", "label"], columns="part", values="seconds").reset_index(),
        how="left",
    )
    parts = [part for part in PHASE_LABELS if part in wide]
    bars = []
    for group in comparison.groups:
        rows = frame[(frame["setting"] == group.setting) & (frame["label"] == group.label)]
        shares = dict(zip(rows["part"], rows["share"], strict=True))
        bars.append(
            {
                "label": group.name,
                "parts": [(part, PHASE_LABELS[part], shares.get(part, 0.0)) for part in parts],
            }
        )
    finding = "No client did any work."
    if len(frame):
        idle = frame[frame["part"].isin(["waiting", "idle"])]
        totals = idle.groupby(["setting", "label"], sort=False)["share"].sum().reset_index()
        share = percent_text(float(totals["share"].max()))
        who = _leader(totals, "share", percent_text)
        finding = (
            f"{who} left clients waiting or idle for the largest share of their time: {share}."
            if who
            else f"All left clients waiting or idle for the same share of their time: {share}."
        )
    return Figure(
        "time",
        "Where the time went",
        finding,
        "Client-seconds of a run, summed over all clients, averaged over seeds; useful and lost work alike. Waiting is "
        "from the arrival of an update to its aggregation.",
        (
            *_who(comparison, wide),
            *(_column(wide, part, PHASE_LABELS[part], "time") for part in parts),
        ),
        {"bars": bars, "parts": parts},
    )


def work(comparison: Comparison) -> Figure:
    """What was done, and what of it was for nothing."""
    frame = comparison.summary
    lost = frame["lost_steps"]
    if lost.notna().any():
        share, who = float(lost.max()), _leader(frame, "lost_steps", percent_text)
        finding = (
            f"{who + ' lost most' if who else 'All lost alike'}: {percent_text(share)} of the local steps went into "
            "updates that never entered the model."
            if share
            else "No finished work was lost."
        )
    else:
        finding = "No work was done."
    columns: tuple[tuple[str, str, Kind], ...] = (
        ("dispatches", "dispatches", "count"),
        ("lost_dispatches", "of them lost", "share"),
        ("lost_steps", "steps lost", "share"),
        ("bytes", "data moved", "bytes"),
        ("lost_bytes", "of it lost", "share"),
        ("compute_s", "client compute", "time"),
        ("lost_seconds", "client time lost", "share"),
        ("energy_j", "energy", "energy"),
    )
    return Figure(
        "work",
        "Work, and work for nothing",
        finding,
        "Means over seeds. Lost is what went into dispatches that ended late, dropped, cut or discarded; work that the "
        "end of the run left unfinished is not counted as lost.",
        (*_who(comparison, frame), *(_column(frame, *column) for column in columns)),
    )


def participation(comparison: Comparison) -> Figure:
    """Who took part, how evenly, how stale."""
    frame = comparison.summary
    columns: tuple[tuple[str, str, Kind], ...] = (
        ("updates", "server updates", "count"),
        ("per_update", "client updates in each", "number"),
        ("contributed", "clients that gave one", "share"),
        ("gini", "Gini coefficient", "number"),
        ("staleness_mean", "mean staleness", "number"),
        ("staleness_max", "largest", "number"),
        ("age_s", "age of updates", "time"),
        ("tau_avg", "mean delay τ", "number"),
        ("tau_max", "largest τ", "number"),
    )
    finding = "No update was aggregated."
    if frame["gini"].notna().any():
        written = "{:.2f}".format
        even = _leader(frame.assign(even=-frame["gini"]), "even", written)
        finding = (
            f"{even} drew on its clients most evenly"
            if even
            else "All drew on their clients as evenly"
        ) + f" (Gini coefficient {written(frame['gini'].min())})."
    return Figure(
        "participation",
        "Participation and delay",
        finding,
        "Means over seeds. Staleness is in server updates, from hand-out to arrival; age in seconds, from hand-out to "
        "aggregation; τ is FedSUM's delay: server updates since the client absent for longest last contributed.",
        (*_who(comparison, frame), *(_column(frame, *column) for column in columns)),
    )


def lorenz(comparison: Comparison) -> Figure:
    """How evenly the updates came from the clients."""
    return Figure(
        "lorenz",
        "How evenly clients took part",
        "The nearer a curve is to the straight line, the more evenly its clients took part.",
        "Clients stand in order of activity; the curve gives the share of all updates that came from the least active "
        "ones, averaged over seeds.",
        (Column("x", "share of clients", "share", LORENZ_AT),),
        {
            "groups": [
                np.mean([run.lorenz for run in group.runs], axis=0) for group in comparison.groups
            ]
        },
    )


def fairness(comparison: Comparison) -> Figure | None:
    """Accuracy on the clients' own data; None if it was not measured."""
    frame = comparison.fairness
    if not len(frame):
        return None
    columns: tuple[tuple[str, str, Kind], ...] = (
        ("clients", "clients", "count"),
        ("mean", "mean", "share"),
        ("sd", "sd over clients", "share"),
        ("worst_tenth", "worst tenth", "share"),
        ("p10", "10th percentile", "share"),
        ("median", "median", "share"),
        ("p90", "90th percentile", "share"),
        ("jain", "Jain's index", "number"),
    )
    fair = _leader(frame, "worst_tenth", percent_text) or "any of them"
    return Figure(
        "fairness",
        "Fairness over clients",
        f"The worst-off tenth of the clients is best off with {fair}: {percent_text(frame['worst_tenth'].max())} "
        "accuracy on average.",
        "Last accuracy measured on each client's own data; every figure is computed in each run and averaged over "
        "seeds. Jain's index is 1 where all clients are equal.",
        (*_who(comparison, frame), *(_column(frame, *column) for column in columns)),
    )


def client_accuracy(comparison: Comparison) -> Figure | None:
    """Distribution of accuracy over clients; None if it was not measured."""
    if not len(comparison.fairness):
        return None
    groups = []
    for group in comparison.groups:
        measured = [np.sort(run.client_accuracy) for run in group.runs if len(run.client_accuracy)]
        below = [np.searchsorted(own, ACCURACIES, side="right") / len(own) for own in measured]
        groups.append(np.mean(below, axis=0) if below else np.full(len(ACCURACIES), np.nan))
    return Figure(
        "client_accuracy",
        "Accuracy on the clients' own data",
        "A curve further to the right belongs to a variant whose clients are better off.",
        "Share of clients whose accuracy on their own data is at most so high, averaged over seeds.",
        (Column("x", "accuracy at most", "share", ACCURACIES),),
        {"groups": groups},
    )


def differences(comparison: Comparison) -> Figure | None:
    """What differs between the scenarios."""
    paths = comparison.grouping.differing
    if not paths:
        return None
    columns = [Column("path", "key", "text", list(paths))]
    for number, group in enumerate(comparison.groups):
        values = [_value(group.values[path]) if path in group.values else "–" for path in paths]
        columns.append(Column(f"group{number}", group.name, "text", values))
    return Figure(
        "differences",
        "What differs between the scenarios",
        f"{count_text(len(paths))} keys differ, the seed apart.",
        "A dash stands where a scenario has no such key, because it belongs to another part. Durations are in seconds, "
        "sizes in bytes, rates in bits a second.",
        tuple(columns),
    )


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def runs(comparison: Comparison) -> Figure:
    """The runs that were compared."""
    frame = comparison.runs
    columns = [*_who(comparison, frame)]
    columns += [
        Column("seed", "seed", "text", [str(seed) for seed in frame["seed"]]),
        _column(frame, "run", "folder", "text"),
        _column(frame, "simulated_s", "simulated", "time"),
        _column(frame, "wall_s", "wall time", "time"),
    ]
    columns += [
        _column(frame, f"final_{name}", f"final {metric_label(name)}", metric_kind(name))
        for name in comparison.metrics[:1]
    ]
    return Figure(
        "runs",
        "The runs",
        f"{count_text(len(frame))} complete runs in {count_text(len(comparison.groups))} groups.",
        "Runs of a group differ in their seed alone.",
        tuple(columns),
    )


def headline(comparison: Comparison) -> str:
    """The comparison in one sentence."""
    if comparison.no_difference:
        return "No difference"
    groups, settings = comparison.groups, comparison.grouping.settings
    if len(groups) == 1:
        return f"{groups[0].label}: {count_text(len(groups[0].runs))} {_plural('run', len(groups[0].runs))}"
    if not comparison.metrics:
        return f"{count_text(len(groups))} variants, time alone"
    if comparison.goals:
        target = comparison.goals[-1]
        frame = comparison.targets
        frame = frame[(frame["metric"] == target.metric) & (frame["target"] == target.value)]
        if len(settings) > 1:
            return _first_in_settings(frame, target, settings)
        known = frame.dropna(subset="time_s")
        if len(known):
            firsts = _firsts(known)
            first = firsts.iloc[0]
            after = f"after {duration_text(first['time_s'])}{_reached_by(first)}"
            if len(firsts) == len(frame):
                return f"All reached {target.title} {after}: a tie, as far as the evaluations tell"
            labels = list(firsts["label"])
            text = f"{listed_text(labels)} reached {target.title} first, {after}"
            if len(firsts) > 1:
                text += ", and tie as far as the evaluations tell"
            base = known[known["label"] == comparison.baseline]
            if comparison.baseline in labels or not len(base):
                return text
            ratio = base.iloc[0]["time_s"] / first["time_s"] if first["time_s"] else math.inf
            return f"{text}: {ratio:.3g} times as fast as {comparison.baseline}"
        return f"None reached {target.title} in half of its runs"
    metric = comparison.metrics[0]
    frame = comparison.summary
    best = best_of(metric, frame[f"final_{metric}"].tolist())
    ends = zip(groups, frame[f"final_{metric}"], strict=True)
    bests = [group.name for group, end in ends if end == best]
    who = "All ended alike" if len(bests) == len(groups) else f"{listed_text(bests)} ended best"
    return f"{who}: {metric_text(metric, best)} {metric_label(metric)}"


def _first_in_settings(frame: pd.DataFrame, target: Target, settings: Sequence[str]) -> str:
    known = frame.dropna(subset="time_s")
    if not len(known):
        return f"None reached {target.title} in half of its runs"
    each = [_firsts(rows)["label"] for _, rows in known.groupby("setting")]
    firsts = pd.concat(each).value_counts()
    count = int(firsts.iloc[0])
    best = [str(label) for label in firsts[firsts == count].index]
    were = "was" if len(best) == 1 else "were each"
    text = (
        f"{listed_text(best)} {were} first to {target.title} in {count} of {len(settings)} settings"
    )
    return f"{text}, ties included" if any(len(labels) > 1 for labels in each) else text


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def tiles(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Label, value and note of the figures below the headline."""
    groups = comparison.groups
    seeds = sorted({len(group.runs) for group in groups})
    span = count_text(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    labels = list(dict.fromkeys(group.label for group in groups))
    found = [
        (
            "Runs",
            count_text(len(comparison.facts)),
            f"{count_text(len(comparison.left_out))} left out"
            if comparison.left_out
            else "all complete",
        ),
        ("Variants", count_text(len(labels)), f"baseline {comparison.baseline}"),
        (
            "Seeds",
            span,
            "a variant" if len(comparison.grouping.settings) == 1 else "a variant and setting",
        ),
    ]
    if len(comparison.grouping.settings) > 1:
        found.insert(2, ("Settings", count_text(len(comparison.grouping.settings)), ""))
    frame = comparison.runs
    total = float(frame["simulated_s"].sum())
    found.append(("Simulated time", duration_text(total), "of all runs together"))
    found.append(("Wall time", duration_text(float(frame["wall_s"].sum())), "of all runs together"))
    return found


def alike(comparison: Comparison) -> list[str]:
    """Pairs of variants in which the same happened, seed by seed, to the last bit."""
    found = []
    for setting in comparison.grouping.settings:
        groups = comparison.grouping.of(setting)
        for place, first in enumerate(groups):
            for second in groups[place + 1 :]:
                if same_results(first, second):
                    found.append(f"{first.name} and {second.name}")
    return found
