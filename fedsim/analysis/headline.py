"""The head of a run's page: one sentence and the main numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsim.analysis import statistics
from fedsim.analysis.figures.base import Figure, population, section, sentence
from fedsim.analysis.figures.learning import late_rise, metric_names, not_finite, targets
from fedsim.analysis.figures.time import reached_target
from fedsim.parts.component import is_user_reference
from fedsim.runs import Run, Status
from fedsim.runs.run import has_diverged, last_metrics, lost_since
from fedsim.vocabulary.formatting import (
    format_bytes,
    format_command,
    format_count,
    format_counted,
    format_duration,
    format_energy,
    format_mean_count,
    format_number,
    format_share,
    format_watt_hours,
)
from fedsim.vocabulary.outcomes import LOST_LABELS

_UNFINISHED = {
    Status.RUNNING: (
        "in progress",
        "This run is in progress",
        "To follow it, use “fedsim watch”.",
    ),
    Status.FAILED: (
        "failed",
        "This run ended with an error",
        "Run its scenario again once the cause is fixed.",
    ),
    Status.INTERRUPTED: (
        "interrupted",
        "This run was interrupted",
        "Finish the run with “{resume}”.",
    ),
}
"""The state of a run that is not complete, as a word and as a sentence, and what to do next, with the command that
resumes it."""


class Tile(NamedTuple):
    """One number at the head of the page.

    Attributes:
        label: its name.
        value: the number as text.
        note: its parts, or a value to compare it with.
    """

    label: str
    value: str
    note: str = ""


def headline(run: Run) -> str:
    """The run in one sentence: when it reached its target, or how good it became, or how much happened."""
    result = _result(run)
    if has_diverged(run):
        diverged = f"the model has diverged: {not_finite(run, lost_since(run)[0])}"
        result = "; ".join(filter(None, (diverged, result)))
    return sentence(result)


def _result(run: Run) -> str:
    """The result; empty for a model that has diverged without reaching a target."""
    names = metric_names(run)
    simulated = format_duration(run.simulated_s)
    for name, value in targets(run).items():
        if name not in names:
            continue
        time_s = run.time_to(name, value)
        metric = run.metric_definition(name)
        goal = metric.format_target(value)
        if math.isfinite(time_s):
            return f"{goal} after {format_duration(time_s)}"
        if has_diverged(run):
            return ""
        best = metric.best(run.metrics[name])
        so_far = "" if run.status is Status.COMPLETE else " so far,"
        return f"{goal} was not reached{so_far} in {simulated}; the best was {metric.format(best)}"
    if has_diverged(run):
        return ""
    if names:
        metric = run.metric_definition(names[0])
        measured = run.metrics[["time_s", metric.name]].dropna().iloc[-1]
        after = format_duration(measured["time_s"])
        return f"{metric.format_named(measured[metric.name])} after {after}"
    return f"{format_counted(len(run.aggregations), 'server update')} in {simulated}"


def explanation(run: Run, waiting: Figure | None) -> list[str]:
    """The sentences below the headline: what took most of the time and which client caused it, what would help most,
    and whether the target was met by a sudden rise; none without a server update.
    """
    if waiting is None:
        return []
    sentences = [waiting.finding]
    changes = waiting.extra["changes"]
    if first := next((each for each in changes if each["share"] >= _NOTABLE), None):
        effect = first["effect"].replace("−", "")
        most = max((each["most"] for each in changes if each is not first), default=0.0)
        verb = "would" if first["least"] >= most else "may"
        per = "per server update"
        if reached_target(run):
            per = "to the target, if as many server updates are needed"
        sentences.append(f"{sentence(first['change'])} {verb} help most: {effect} less time {per}.")
    return [*sentences, *late_rise(run)]


_NOTABLE = 0.02
"""The least share of the time whose saving is named in the head of the page."""
_FIRST = ("Simulated time", "Clients that contributed", "Work lost", "Data moved")
"""The numbers that are not folded."""


def tiles(run: Run) -> list[Tile]:
    """The numbers below the headline, the four main ones first."""
    every = {tile.label: tile for tile in _tiles(run)}
    return [*map(every.pop, _FIRST), *every.values()]


def _tiles(run: Run) -> list[Tile]:
    shown = []
    table = run.dispatches
    for metric in map(run.metric_definition, metric_names(run)[:1]):
        last, best = last_metrics(run)[metric.name], metric.best(run.metrics[metric.name])
        note = "the best value of the run" if best == last else f"best {metric.format(best)}"
        if not math.isfinite(last):
            note = f"not finite; {note}"
        label = f"Final {metric.label}"
        if run.status is not Status.COMPLETE:
            label = f"{sentence(metric.label)} so far"
            note = f"{_UNFINISHED[run.status][0]} at {format_duration(run.simulated_s)}; {note}"
        shown.append(Tile(label, metric.format(last), note))
    wall_s = run.info.get("wall_s")
    faster = (
        f"{format_count(run.simulated_s / wall_s)} times real time"
        if wall_s and "clock" not in run.info
        else ""
    )
    shown.append(Tile("Simulated time", format_duration(run.simulated_s), faster))
    if wall_s is not None:
        learning_s = run.info.get("wall_learning_s")
        notes = [f"{format_duration(learning_s)} in the learning plane"] if learning_s else []
        if resumed := resumptions(run):
            notes.append(f"in total, {resumed}")
        note = "; ".join(notes)
        shown.append(Tile("Wall time", format_duration(wall_s), note))
    contributing = run.edge_dispatches if run.has_edges else table
    kind = "updates of edge servers" if run.has_edges else "client updates"
    updates, entered = len(run.aggregations), int(contributing["aggregated_version"].notna().sum())
    note = f"{kind} in each: {format_mean_count(entered / updates)}" if updates else ""
    shown.append(Tile("Server updates", format_count(updates), note))
    if run.has_edges:
        ways = (format_bytes(int(contributing[f"bytes_{way}"].sum())) for way in ("down", "up"))
        over = " and ".join(f"{size} {way}" for size, way in zip(ways, ("down", "up"), strict=True))
        note = f"{format_count(len(run.edge_aggregations))} versions made; {over} over the backhaul"
        shown.append(Tile("Edge servers", format_count(contributing["client_id"].nunique()), note))
    counts = statistics.outcome_counts(table)
    note = f"{format_share(counts['aggregated'] / len(table))} aggregated" if len(table) else ""
    shown.append(Tile("Dispatches", format_count(len(table)), note))
    by_outcome = statistics.work_by_outcome(table, run.phases)
    lost, steps = by_outcome.loc[list(LOST_LABELS)].sum(), by_outcome["steps"].sum()
    note = f"of the local steps, in {format_count(lost['dispatches'])} of {format_count(len(table))} dispatches"
    share = format_share(lost["steps"] / steps if steps else 0.0)
    shown.append(Tile("Work lost", share, note))
    given = statistics.participation_counts(table, population(run))
    # Clients that are kept out or lack the memory count as offline.
    barred = {
        "excluded": int(run.info.get("excluded_clients") or 0),
        "without the memory to train": int(run.info.get("ineligible_clients") or 0),
    }
    away = int((run.clients["online_fraction"] == 0).sum()) if run.has_clients else 0
    why = {**barred, "never online": max(away - sum(barred.values()), 0)}
    others = [f"{format_count(count)} {words}" for words, count in why.items() if count]
    notes = [f"of {format_count(len(given))}", *others]
    contributed = format_count(int((given > 0).sum()))
    shown.append(Tile("Clients that contributed", contributed, "; ".join(notes)))
    down, up = (int(run.work[f"bytes_{way}"].sum()) for way in ("down", "up"))
    note = f"{format_bytes(down)} down, {format_bytes(up)} up"
    shown.append(Tile("Data moved", format_bytes(down + up), note))
    energy = float(np.nansum(run.work["energy_j"].to_numpy()))
    if energy:
        from fedsim.scenario.model import Energy  # Slow to import, and comparisons do not need it.

        watts = section(run, "devices", "energy")
        default = Energy().model_dump(include={"compute_w", "download_w", "upload_w"})
        by_default = watts == {**watts, **default} and not watts.get("classes")
        note = format_watt_hours(energy) + ("; default watts" if by_default else "")
        shown.append(Tile("Energy of the devices", format_energy(energy), note))
    for name, label in (("gco2e", "Emissions, g CO2e"), ("cost", "Cost")):
        if name in (work := run.work):
            total, used = work[name].sum(), work[name][work["outcome"] == "aggregated"].sum()
            note = f"{format_share(used / total)} for aggregated updates" if total else ""
            shown.append(Tile(label, format_number(total), note))
    return shown


def resumptions(run: Run) -> str:
    """How often the run was resumed, in words; empty if it never was."""
    count = run.info.get("resumed", 0)
    times = "once" if count == 1 else f"{format_count(count)} times"
    return f"resumed {times}" if count else ""


def subtitle(run: Run) -> str:
    """The scenario in one line: method, schedule, data, number of clients and seed, if it states them."""

    def name_of(where: str, key: str) -> str:
        part = section(run, where).get(key)
        name = str(part.get("name", "")) if isinstance(part, dict) else str(part or "")
        return Path(name).name if is_user_reference(name) else name

    parts = (("server", "method"), ("server", "schedule"), ("task", "dataset"), ("task", "model"))
    words = [name_of(*part) for part in parts]
    words.append(format_counted(population(run), "client"))
    if "seed" in run.scenario:
        words.append(f"seed {run.scenario['seed']}")
    return " · ".join(word for word in words if word)


def notice(run: Run) -> str:
    """A warning if the run is not complete, or the notes of a complete run; empty otherwise."""
    if run.status is Status.COMPLETE:
        notes = run.info.get("notes", [])
        # The names of keys have no capitals.
        begun = (note if "." in note.split(maxsplit=1)[0] else sentence(note) for note in notes)
        return " ".join(f"{note.rstrip('.')}." for note in begun)
    until = format_duration(run.simulated_s)
    _, state, what_next = _UNFINISHED[run.status]
    error = run.info.get("error")
    reason = f" ({error})" if run.status is Status.FAILED and error else ""
    return (
        f"{state}{reason}. This page shows the first {until} of simulated time, up to the last rows that "
        f"reached the disk. {what_next.format(resume=format_command('resume', run.path))}"
    )
