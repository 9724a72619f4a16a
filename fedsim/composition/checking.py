"""Checks a scenario before it runs; torch is not imported unless the scenario needs it for the check itself."""

from __future__ import annotations

from fedsim.composition.assembly import assemble, check_server
from fedsim.composition.extras import require_trackers
from fedsim.composition.rules import build_station
from fedsim.composition.shared import Shared
from fedsim.errors import UserError, further_checks
from fedsim.scenario.loading import LoadedScenario


def check(
    loaded: LoadedScenario, shared: Shared | None = None, *, timing_only: bool = False
) -> list[UserError]:
    """Make all checks that a run makes before its first event, without running.

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
        require_trackers(loaded)
        assembly = assemble(loaded, shared, timing_only=timing_only)
        warnings = check_server(assembly)
    task, rules, scenario = assembly.task, assembly.rules, loaded.scenario
    with loaded.locating_errors():
        if rules.learns and task.may_lack_kernel(scenario.training):
            build_station(scenario, task, rules.method, scenario.training)
    return [loaded.located(warning) for warning in warnings]
