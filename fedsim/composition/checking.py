"""The checks before the first event of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsim.composition.assembly import Assembly, assemble, build_station
from fedsim.composition.extras import require_trackers
from fedsim.composition.prospects import impossible
from fedsim.composition.rules import check_names
from fedsim.composition.rules.planned import PLANNED, UNITS
from fedsim.composition.server import check_server
from fedsim.composition.shared import Shared
from fedsim.errors import UserError, combined, further_checks
from fedsim.scenario.loading import LoadedScenario

if TYPE_CHECKING:
    from fedsim.analysis.run import Run


def check(
    loaded: LoadedScenario, shared: Shared | None = None, *, timing_only: bool = False
) -> list[UserError]:
    """Make all checks that a run makes before its first event, without running.

    torch is not imported unless the scenario needs it for the check itself.

    Args:
        loaded: the scenario.
        shared: traces and data sets already loaded.
        timing_only: simulate time only.

    Returns:
        Warnings: settings that are legal but probably not intended.

    Raises:
        UserError: the error that :func:`fedsim.composition.execution.execute` would raise.
    """
    assembly, warnings = prepare(loaded, shared, timing_only=timing_only)
    task, scenario = assembly.task, loaded.scenario
    with loaded.locating_errors():
        if assembly.learns and task.may_lack_kernel(scenario.training):
            build_station(scenario, task, assembly.method, scenario.training)
    return warnings


def prepare(
    loaded: LoadedScenario,
    shared: Shared | None = None,
    *,
    timing_only: bool = False,
    timeline: Run | None = None,
) -> tuple[Assembly, list[UserError]]:
    """Put a scenario together, and check that its server can be built and that its clients can do the work.

    Args:
        loaded, shared, timing_only: as for :func:`check`.
        timeline: a complete run whose timeline replaces the simulation.

    Returns:
        The parts of the run, and warnings: settings that are legal but probably not intended.

    Raises:
        UserError: parts are not compatible, or the run cannot succeed.
    """
    with further_checks(), loaded.locating_errors():
        check_names(loaded.scenario.ignore)
        require_trackers(loaded)
        assembly = assembled(loaded, shared, timing_only=timing_only, timeline=timeline)
        check_server(assembly)
        ignored = loaded.scenario.ignore
        if errors := list(impossible(assembly.prospects)):
            # Values in a wrong unit may be the cause.
            raise combined([*errors, *PLANNED.warnings(assembly, ignored, only=UNITS)])
        warnings = PLANNED.warnings(assembly, ignored)
    if shared is None:
        assembly.world.release_traces()
    return assembly, [loaded.located(warning) for warning in warnings]


def assembled(
    loaded: LoadedScenario, shared: Shared | None, *, timing_only: bool, timeline: Run | None
) -> Assembly:
    """A scenario put together, if there is a ``timeline`` with the devices and the data split of that run.

    Raises:
        UserError: its parts are not compatible, or not those of the timeline.
    """
    if timeline is None:
        return assemble(loaded, shared, timing_only=timing_only)
    from fedsim.composition.recorded import check_assembly, check_timeline, world_seed

    check_timeline(timeline, loaded)
    assembly = assemble(loaded, shared, world_seed=world_seed(timeline))
    check_assembly(timeline, assembly)
    return assembly
