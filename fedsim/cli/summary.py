"""The short summary that a run ends with."""

from __future__ import annotations

import math

import click
from rich.table import Table

from fedsim.analysis.headline import resumptions
from fedsim.analysis.statistics import participation_counts
from fedsim.analysis.steady import throughput
from fedsim.files import terminal
from fedsim.files.documents import json_text
from fedsim.runs.run import Run, recorded_metrics
from fedsim.vocabulary.formatting import format_count, format_duration, format_mean
from fedsim.vocabulary.outcomes import OUTCOME_LABELS

_OCCASIONAL = {
    "clients excluded": "excluded_clients",
    "clients short of memory": "ineligible_clients",
    "messages to offline nodes": "offline_messages",
    "ClientApp errors": "client_errors",
}
"""Counts of ``run.json`` that are shown unless they are 0."""


def print_summary(run: Run, *, as_json: bool = False) -> None:
    """Print a run's main figures and where its report is; for scripts, its path and its ``run.json``."""
    if as_json:
        click.echo(json_text({"path": str(run.path), **run.info}))
        return
    dispatches, metrics = run.entry("dispatches"), recorded_metrics(run) or {}
    title = f"{run.name}, seed {run.entry('seed')}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_row("simulated time", format_duration(run.entry("simulated_s")))
    resumed = f" in all, {resumptions(run)}" if resumptions(run) else ""
    table.add_row("wall time", format_duration(run.entry("wall_s")) + resumed)
    if run.has_rounds or run.entry("rounds") != run.entry("versions_made"):
        table.add_row("rounds", format_count(run.entry("rounds")))
    table.add_row("model versions", format_count(run.entry("versions_made")))
    counts = run.dispatches["outcome"].value_counts()
    outcomes = ", ".join(
        f"{format_count(counts[label])} {label}" for label in OUTCOME_LABELS if counts[label]
    )
    table.add_row("dispatches", format_count(dispatches) + (f" ({outcomes})" if outcomes else ""))
    if run.messages is not None:
        counted = (run.messages[name].value_counts() for name in ("kind", "outcome"))
        kinds, ends = (
            ", ".join(f"{format_count(n)} {name}" for name, n in each.items()) for each in counted
        )
        shown = f" ({kinds}; {ends})" if kinds else ""
        table.add_row("messages", format_count(len(run.messages)) + shown)
    given = participation_counts(run.dispatches, len(run.clients))
    contributed = f"{format_count((given > 0).sum())} of {format_count(len(given))}"
    table.add_row("clients that contributed", contributed)
    steady = throughput(run) if run.entry("timing_only") else None
    if steady is not None:
        value = format_mean(steady.per_h, steady.half_width, "number")
        after = (
            f", after a warm-up of {format_duration(steady.warm_up_s)}" if steady.warm_up_s else ""
        )
        table.add_row("client updates per hour", f"{value} (95% interval{after})")
    for label, key in _OCCASIONAL.items():
        if count := run.info.get(key):
            table.add_row(label, format_count(count))
    for key, last in metrics.items():
        metric = run.metric_definition(key)
        table.add_row(metric.label, metric.format(last))
    for name, target in run.scenario["stop"].get("target", {}).items():
        reached_s = run.time_to(name, target)
        text = "not reached" if math.isnan(reached_s) else f"after {format_duration(reached_s)}"
        table.add_row(run.metric_definition(name).format_target(target), text)
    console = terminal.console()
    console.print(table)
    console.print(f"report: {run.folder.report}", soft_wrap=True)
