"""What runs will cost, in words, before they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fedsim.errors import UserError
from fedsim.scenario.comparing import text
from fedsim.vocabulary.formatting import format_count, format_counted, format_duration, format_share

if TYPE_CHECKING:
    from fedsim.composition.cost import Cost
    from fedsim.scenario.loading import LoadedScenario
    from fedsim.sweeps.plan import PlannedRun

_LONG_S = 30.0
"""Wall seconds from which a cost is announced."""
_VARIANTS = 8
"""Number of variants of a sweep from which its cost is estimated."""


def variants_of(planned: Sequence[PlannedRun]) -> list[LoadedScenario]:
    """The first run of each of the first variants of a sweep."""
    firsts: dict[str, LoadedScenario] = {}
    for run in planned:
        firsts.setdefault(text(run.values), run.loaded)
    return list(firsts.values())[:_VARIANTS]


def known_cost(
    variants: Sequence[LoadedScenario], runs: int, *, raises: bool = False, **settings: Any
) -> Cost | None:
    """The cost of ``runs`` runs of these variants.

    Args:
        variants: their scenarios.
        runs: the number of runs.
        raises: whether an error that the run is certain to end with is raised.
        settings: those of :func:`fedsim.composition.cost.estimate`.

    Returns:
        The cost; None if a part fails or its data is not on the disk, as the run will report.

    Raises:
        UserError: a run would end with it, whatever it learns.
    """
    from fedsim.composition.cost import estimate, of_runs
    from fedsim.composition.shared import Shared
    from fedsim.tasks.reading.files import NotOnDisk

    shared, costs = Shared(), []
    for one in variants:
        server, target = one.scenario.server.of_devices, one.scenario.stop.target
        # A target may end the run before the error, and losses may change what is drawn.
        is_certain = not (target or server.selection.type.needs_training)
        try:
            with one.locating_errors():
                costs.append(estimate(one, shared, runs=runs, **settings))
        except Exception as error:
            is_of_run = isinstance(error, UserError) and not isinstance(error, NotOnDisk)
            if raises and is_certain and is_of_run:
                raise
            return None
    return of_runs(costs, runs)


def announce(
    variants: Sequence[LoadedScenario], runs: int | None = None, *, jobs: int = 1, **settings: Any
) -> None:
    """Say what a run, or ``runs`` runs of a sweep, will cost if it takes long."""
    cost = known_cost(variants, runs or 1, **settings)
    if cost is not None and cost.wall_s is not None and cost.wall_s / jobs >= _LONG_S:
        for line in cost_lines(cost, variants[0], runs, jobs):
            click.echo(line, err=True)


def cost_lines(
    cost: Cost, loaded: LoadedScenario, runs: int | None = None, jobs: int = 1
) -> list[str]:
    """The cost in words, and for a sweep without a target, how to make it cheaper.

    Args:
        cost: the cost.
        loaded: one of the runs.
        runs: the number of runs of a sweep; None for a single run.
        jobs: the number of runs at a time.
    """
    counts = (
        (cost.rounds, "rounds"),
        (cost.versions if cost.versions != cost.rounds else 0, "server updates"),
        (cost.dispatches, "dispatches"),
        (cost.updates, "updates to train"),
        (cost.steps, "local steps"),
    )
    parts = [f"{format_count(count)} {noun}" for count, noun in counts if count]
    if cost.wall_s is not None:
        parts.append(f"about {format_duration(round(cost.wall_s / jobs, 1))} of wall time")
    target = loaded.scenario.stop.target
    head = "cost" if runs is None else f"cost of {format_counted(runs, 'run')}"
    line = f"{head}{', at most' if target else ''}: {', '.join(parts)}"
    if cost.share < 1:
        line += f", estimated from the first {format_share(cost.share)}"
    if runs is None or target or not cost.updates:
        return [line]
    fix = "set one (-s stop.target.accuracy=0.9), lower the limits in stop, or add --timing-only"
    return [line, f"no stop.target ends these runs before their limits: {fix}"]
