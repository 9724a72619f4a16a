"""``fedsim ls``: the runs and sweeps below a folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, filterfalse, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import options
from fedsim.errors import UserError
from fedsim.vocabulary.formatting import (
    NAMED,
    format_count,
    format_duration,
    format_names,
    natural_order,
)

if TYPE_CHECKING:
    from fedsim.runs.listing import Listed

_KEYS: dict[str, Callable[[Listed], Any]] = {
    "name": lambda row: natural_order(str(row.path)),
    "status": lambda row: sorted(row.statuses),
    "scenario": lambda row: natural_order(row.scenario),
    "method": lambda row: row.methods,
    "time": lambda row: min(
        filterfalse(math.isnan, chain(*row.times_s.values())), default=math.inf
    ),
    "newest": lambda row: -row.changed,
}
"""What rows are sorted by; ties stay in the order of their names."""


@click.command(name="ls")
@click.argument("folder", type=options.path_type, default="runs")
@click.option("--sort", type=click.Choice(list(_KEYS)), default="name", help="Order.")
@click.option("--tag", metavar="TAG", help="Only runs and sweeps whose scenario has this tag.")
@click.option(
    "--target",
    metavar="METRIC=VALUE",
    help="Show when this target was reached, such as accuracy=0.9, instead of the scenarios' stop.target.",
)
@options.json_option
def command(folder: Path, sort: str, tag: str | None, target: str | None, as_json: bool) -> None:
    """List the runs and sweeps below FOLDER (runs, if it is not given); of a sweep, list its runs.

    Each has its status, scenario, method, seed, tags ('tags: [paper]' in the scenario), and the simulated time at which
    it reached its target; of a sweep, the first and the last of its runs that did.
    """
    from fedsim.runs.listing import listed

    goals = None
    if target is not None:
        from fedsim.analysis.comparison.targets import Target

        goal = Target.parse(target)
        goals = {goal.metric: goal.value}
    rows = sorted(listed(folder, goals), key=_KEYS["name"])
    known = dict.fromkeys(chain.from_iterable(row.tags for row in rows))
    rows = sorted((row for row in rows if tag is None or tag in row.tags), key=_KEYS[sort])
    if as_json:
        options.print_json(list(map(_document, rows)))
        return
    if not rows:
        hint = f"tags: {', '.join(known) or 'none'}"
        raise UserError(f"no run has the tag '{tag}'", where=folder, hint=hint)
    headings = ("", "status", "scenario", "method", "seed")
    goals_shown = dict.fromkeys(chain.from_iterable(row.times_s for row in rows))
    cells = []
    for row in rows:
        name = row.path.absolute().name if row.path == folder else str(row.path.relative_to(folder))
        methods, seeds = format_names(row.methods or ("",), NAMED), ""
        if row.seeds:
            seeds = str(row.seeds[0]) if len(row.seeds) == 1 else f"{len(row.seeds)} seeds"
        plain = (name, _status(row), row.scenario, methods, seeds, ", ".join(row.tags))
        # No name looks like another row.
        *first, tags = (text.replace("\n", "\\n") for text in plain)
        times = [_time(row.times_s.get(goal, ())) for goal in goals_shown]
        cells.append([*first, *times, tags])
    options.print_table(
        (*headings, *starmap(_goal, goals_shown), "tags"), cells, common=headings[1:], box=None
    )


def _status(row: Listed) -> str:
    if sum(row.statuses.values()) == 1:
        return next(iter(row.statuses))
    return ", ".join(f"{format_count(count)} {status}" for status, count in row.statuses.items())


def _goal(metric: str, value: float) -> str:
    from fedsim.vocabulary.metrics import definition

    return definition(metric).format_target(value)


def _time(times: Sequence[float]) -> str:
    """When a target was reached: ``1 h to 2 h (4 of 5)``; empty for rows without this target."""
    reached = [seconds for seconds in times if not math.isnan(seconds)]
    if not reached:
        return "not reached" if times else ""
    text = " to ".join(dict.fromkeys(map(format_duration, (min(reached), max(reached)))))
    return text if len(times) == 1 else f"{text} ({len(reached)} of {len(times)})"


def _document(row: Listed) -> dict[str, Any]:
    times = {f"{metric}={value:g}": times for (metric, value), times in row.times_s.items()}
    return {**vars(row), "path": str(row.path), "statuses": dict(row.statuses), "times_s": times}
