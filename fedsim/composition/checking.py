"""Checks a scenario before it runs; torch is not imported unless the scenario needs it for the check itself."""

from __future__ import annotations

from fedsim.composition.assembly import assemble, check_server
from fedsim.composition.extras import require_trackers
from fedsim.composition.shared import Shared
from fedsim.scenario.loading import LoadedScenario


def check(
    loaded: LoadedScenario, shared: Shared | None = None, *, timing_only: bool = False
) -> None:
    """Check everything that a run refuses before its first event, without running.

    Args:
        loaded: the scenario.
        shared: traces and data sets already loaded.
        timing_only: leave the learning out.

    Raises:
        UserError: the one that :func:`fedsim.composition.execution.execute` would raise.
    """
    with loaded.locating_errors():
        require_trackers(loaded)
        assembly = assemble(loaded, shared, timing_only=timing_only)
        check_server(assembly)
        task, rules, scenario = assembly.task, assembly.rules, loaded.scenario
        if rules.learns and task.may_lack_kernel(scenario.training):
            from fedsim.learning.workers import Station

            assert rules.execution is not None
            Station(task, rules.method, scenario.training, scenario.seed, rules.execution)
