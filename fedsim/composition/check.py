"""Checks the world of a run before its first event."""

from __future__ import annotations

from fedsim.composition.build import build
from fedsim.composition.planes import build_station, check_server
from fedsim.composition.rules.planned import PLANNED, UNITS
from fedsim.composition.shared import Shared
from fedsim.composition.world import World, impossible
from fedsim.errors import UserError, combined, further_checks
from fedsim.scenario.loading import LoadedScenario


def check(world: World) -> list[UserError]:
    """Check that the server of a run can be built, and that its clients can do the work.

    Returns:
        Warnings: settings that are legal but probably not intended.
    """
    loaded, ignored = world.loaded, world.scenario.ignore
    with further_checks(), loaded.locating_errors():
        if ignored:
            # The rules on finished runs import pandas, which takes as long as the rest of a check.
            from fedsim.composition.rules.finished import check_names

            check_names(ignored)
        for number, part in enumerate(world.scenario.logging):
            try:
                part.type.require_installed()
            except UserError as error:
                where = f"logging.{number}"
                raise UserError(error.message, where=where, hint=error.hint) from error
        check_server(world)
        if errors := list(impossible(world.prospects)):
            # Values in a wrong unit may be the cause.
            raise combined([*errors, *PLANNED.warnings(world, ignored, only=UNITS)])
        return [loaded.located(warning) for warning in PLANNED.warnings(world, ignored)]


def check_scenario(
    loaded: LoadedScenario, shared: Shared | None = None, *, timing_only: bool = False
) -> list[UserError]:
    """Make all checks that a run makes before its first event, without running.

    torch is not imported unless the scenario needs it for the check itself. Arguments are those of
    :func:`~fedsim.composition.build.build`, and the result is that of :func:`check`.
    """
    world = build(loaded, shared, timing_only=timing_only)
    warnings = check(world)
    if world.learns and world.task.may_lack_kernel(world.training):
        with loaded.locating_errors():
            build_station(world)
    return warnings
