"""The short summary that a run ends with."""

from __future__ import annotations

import functools
import json
import math

import click
from rich.console import Console
from rich.table import Table

from fedsim.analysis.headline import resumptions
from fedsim.analysis.statistics import participation_counts
from fedsim.parts.catalog import CATALOG
from fedsim.runs.divergence import has_diverged, lost_metrics, own_metrics
from fedsim.runs.run import Run
from fedsim.scheduling.continuous import Continuous
from fedsim.vocabulary.formatting import format_count, format_counted, format_duration, format_names
from fedsim.vocabulary.outcomes import OUTCOME_LABELS

_OCCASIONAL = {
    "clients short of memory": "ineligible_clients",
    "messages to offline nodes": "offline_messages",
    "ClientApp errors": "client_errors",
}
"""Counts of ``run.json`` that are shown unless they are 0."""


def print_summary(run: Run, *, as_json: bool = False) -> None:
    """Print a run's main figures and where its report is; for scripts, its path and its ``run.json``."""
    if as_json:
        click.echo(json.dumps({"path": str(run.path), **run.info}))
        return
    dispatches, metrics = run.entry("dispatches"), run.entry("metrics")
    title = f"{run.name}, seed {run.entry('seed')}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_row("simulated time", format_duration(run.entry("simulated_s")))
    resumed = f" in all, {resumptions(run)}" if resumptions(run) else ""
    table.add_row("wall time", format_duration(run.entry("wall_s")) + resumed)
    if _has_rounds(run):
        table.add_row("rounds", format_count(run.entry("rounds")))
    table.add_row("model versions", format_count(run.entry("versions_made")))
    counts = run.dispatches["outcome"].value_counts()
    outcomes = ", ".join(
        f"{format_count(counts[label])} {label}" for label in OUTCOME_LABELS if counts[label]
    )
    table.add_row("dispatches", format_count(dispatches) + (f" ({outcomes})" if outcomes else ""))
    given = participation_counts(run.dispatches, len(run.clients))
    contributed = f"{format_count((given > 0).sum())} of {format_count(len(given))}"
    table.add_row("clients that contributed", contributed)
    for label, key in _OCCASIONAL.items():
        if count := run.info.get(key):
            table.add_row(label, format_count(count))
    for name, value in metrics.items():
        metric = run.metric_definition(name)
        table.add_row(metric.label, metric.format(value))
    # A Flower app has no schedule in its scenario.
    is_app = "schedule" not in run.scenario["server"]
    met_at_start = False
    for name, target in run.scenario["stop"].get("target", {}).items():
        reached_s = run.time_to(name, target)
        met_at_start |= reached_s == 0 and not run.entry("versions_made")
        text = "not reached" if math.isnan(reached_s) else f"after {format_duration(reached_s)}"
        table.add_row(run.metric_definition(name).format_target(target), text)
    errors = run.info.get("client_errors")
    console = Console()
    console.print(table)
    say = functools.partial(console.print, soft_wrap=True, highlight=False)
    if met_at_start:
        say(
            "[yellow]the initial model already reaches the target,[/yellow] so the run ended before its first update;"
            " choose a different stop.target, or leave it out"
        )
    elif dispatches and not counts["aggregated"] and (is_app or run.entry("versions_made")):
        # A run of a scenario without any version has a warning that says more.
        knobs = "the timeouts of the app" if is_app else "deadline, min_updates"
        cause = (
            f"the ClientApp failed on {format_counted(errors, 'message')}; the first tracebacks are in the log above"
            if errors
            else "see the outcomes of the dispatches, and compare "
            f"{knobs} and stop with the duration of a dispatch"
        )
        say(f"[yellow]no update reached the model:[/yellow] {cause}")
    lost = lost_metrics(run)
    if lost and not has_diverged(run):
        user_metrics = own_metrics(run.scenario)
        files = [name for name in user_metrics if name.rpartition(":")[2] in lost] or user_metrics
        verb = "is" if len(lost) == 1 else "are"
        say(
            f"[yellow]undefined for the last model:[/yellow] {format_names(lost)} {verb} not finite, but the loss is; "
            f"see {', '.join(files)}"
        )
    say(f"report: {run.folder.report}")


def _has_rounds(run: Run) -> bool:
    """Whether rounds are not just another name for the versions."""
    # A Flower app has no schedule in its scenario; a user's schedule counts its rounds itself.
    name = run.scenario["server"].get("schedule", {}).get("name")
    schedule = CATALOG.parts("schedule").get(name)
    return schedule is None or not issubclass(schedule, Continuous)
