"""What a run comes to: the sentence and the figures at the head of its page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.analysis import statistics
from fedsim.analysis.figures.base import population
from fedsim.analysis.figures.learning import metric_names, targets
from fedsim.analysis.text import (
    best_of,
    count_text,
    duration_text,
    goal_text,
    metric_label,
    metric_text,
    percent_text,
    prefixed_text,
)
from fedsim.runs import Run, Status


@dataclass(frozen=True)
class Tile:
    """One figure at the head of the page.

    Attributes:
        label: what it is.
        value: the figure, ready to read.
        note: what it is made of, or compares with.
    """

    label: str
    value: str
    note: str = ""


def headline(run: Run) -> str:
    """The run in one sentence: when it reached its target, or how good it became, or how much happened."""
    names = metric_names(run)
    simulated = duration_text(run.simulated_s)
    for name, value in targets(run).items():
        if name not in names:
            continue
        time_s = run.time_to(name, value)
        goal = f"{goal_text(name, value)} {metric_label(name)}"
        if math.isfinite(time_s):
            return f"{goal} after {duration_text(time_s)}"
        best = metric_text(name, best_of(name, run.metrics[name].tolist()))
        return f"{goal} was not reached in {simulated}; the best was {best}"
    if names:
        last = run.metrics[names[0]].dropna().iloc[-1]
        return f"{metric_text(names[0], last)} {metric_label(names[0])} after {simulated}"
    return f"{count_text(len(run.aggregations))} server updates in {simulated}"


def tiles(run: Run) -> list[Tile]:
    """The figures below the headline."""
    found = []
    table = run.dispatches
    for name in metric_names(run)[:1]:
        values = run.metrics[name].dropna().tolist()
        best = best_of(name, values)
        note = f"best {metric_text(name, best)}" if best != values[-1] else "the best of the run"
        found.append(Tile(f"Final {metric_label(name)}", metric_text(name, values[-1]), note))
    found.append(_simulated(run))
    wall_s = run.info.get("wall_s")
    if wall_s is not None:
        learning_s = run.info.get("wall_learning_s")
        note = f"{duration_text(learning_s)} in the learning plane" if learning_s else ""
        found.append(Tile("Wall time", duration_text(wall_s), note))
    updates = len(run.aggregations)
    per_update = table["aggregated_version"].notna().sum() / updates if updates else math.nan
    note = f"{per_update:.1f} client updates each" if updates else ""
    found.append(Tile("Server updates", count_text(updates), note))
    counts = statistics.outcome_counts(table)
    note = f"{percent_text(counts['aggregated'] / len(table))} aggregated" if len(table) else ""
    found.append(Tile("Dispatches", count_text(len(table)), note))
    given = statistics.participation_counts(table, population(run))
    note = f"of {count_text(len(given))}"
    ineligible = int(run.info.get("ineligible_clients") or 0)
    if ineligible:
        note += f"; {count_text(ineligible)} lack the memory to train"
    found.append(Tile("Clients that contributed", count_text(int((given > 0).sum())), note))
    down, up = int(table["bytes_down"].sum()), int(table["bytes_up"].sum())
    note = f"{prefixed_text(down, 'B')} down, {prefixed_text(up, 'B')} up"
    found.append(Tile("Data moved", prefixed_text(down + up, "B"), note))
    energy = float(np.nansum(table["energy_j"].to_numpy()))
    if energy:
        found.append(
            Tile(
                "Energy of the devices",
                prefixed_text(energy, "J"),
                prefixed_text(energy / 3600.0, "Wh"),
            )
        )
    return found


def _simulated(run: Run) -> Tile:
    wall_s = run.info.get("wall_s")
    faster = f"{run.simulated_s / wall_s:,.0f} times real time" if wall_s else ""
    return Tile("Simulated time", duration_text(run.simulated_s), faster)


def subtitle(run: Run) -> str:
    """The scenario in one line: method, schedule, data and number of clients, as far as it says."""
    scenario = run.scenario
    server = _part(scenario, "server")
    task = _part(scenario, "task")
    words = [
        _name(server, "method"),
        _name(server, "schedule"),
        _name(task, "dataset"),
        _name(task, "model"),
    ]
    words.append(f"{count_text(population(run))} clients")
    if "seed" in scenario:
        words.append(f"seed {scenario['seed']}")
    return " · ".join(word for word in words if word)


def _part(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    part = mapping.get(key)
    return part if isinstance(part, dict) else {}


def _name(mapping: dict[str, Any], key: str) -> str:
    part = mapping.get(key)
    return str(part.get("name", "")) if isinstance(part, dict) else str(part or "")


def notice(run: Run) -> str:
    """What a reader must know before trusting the figures; empty for a complete run."""
    if run.status is Status.COMPLETE:
        return ""
    until = duration_text(run.simulated_s)
    state = {
        Status.RUNNING: "This run is going on, or was killed",
        Status.FAILED: "This run ended with an error",
        Status.INTERRUPTED: "This run was interrupted",
    }[run.status]
    error = run.info.get("error")
    reason = f" ({error})" if run.status is Status.FAILED and error else ""
    return (
        f"{state}{reason}. The page shows what had reached the disk: the first {until} of simulated time. "
        "“fedsim resume” finishes the run."
    )
