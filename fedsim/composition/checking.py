"""The checks before the first event of a run."""

from __future__ import annotations

from fedsim.composition.assembly import Assembly, assemble, build_station
from fedsim.composition.extras import require_trackers
from fedsim.composition.prospects import impossible
from fedsim.composition.rules import check_names
from fedsim.composition.rules.planned import PLANNED, UNITS
from fedsim.composition.server import check_server
from fedsim.composition.shared import Shared
from fedsim.errors import UserError, combined, further_checks
from fedsim.scenario.loading import LoadedScenario


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
    with further_checks(), loaded.locating_errors():
        check_names(loaded.scenario.ignore)
        require_trackers(loaded)
        assembly = assemble(loaded, shared, timing_only=timing_only)
        warnings = warnings_about(assembly)
    task, scenario = assembly.task, loaded.scenario
    with loaded.locating_errors():
        if assembly.learns and task.may_lack_kernel(scenario.training):
            build_station(scenario, task, assembly.method, scenario.training)
    return [loaded.located(warning) for warning in warnings]


def warnings_about(assembly: Assembly) -> list[UserError]:
    """Check that the server can be built and that the clients can do the work.

    Returns:
        Warnings: settings that are legal but probably not intended.

    Raises:
        UserError: the server cannot be built, or the run cannot succeed.
    """
    check_server(assembly)
    ignored = assembly.scenario.ignore
    if errors := list(impossible(assembly.prospects)):
        # Values in a wrong unit may be the cause.
        raise combined([*errors, *PLANNED.warnings(assembly, ignored, only=UNITS)])
    return PLANNED.warnings(assembly, ignored)
