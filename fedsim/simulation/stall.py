"""The guards against a run that never ends: its server uses no update, time does not pass, or the clock ends first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsim.errors import UserError
from fedsim.units import CLOCK_YEARS, LONGEST_S, NS_PER_S
from fedsim.vocabulary.formatting import format_count, format_duration
from fedsim.vocabulary.outcomes import Outcome

if TYPE_CHECKING:
    from fedsim.simulation.level import Level

LEAST_STALLED_AFTER = 100_000
DISPATCHES_PER_CLIENT = 100

_LONGER = dict.fromkeys(
    ("deadline", "timeout", "limit", "limit_factor", "latest_factor", "share"), "raise"
)
_FIXES: dict[Outcome, dict[str, str]] = {
    Outcome.CUT: _LONGER,
    Outcome.LATE: _LONGER,
    Outcome.DISCARDED: {"min_updates": "lower", "max_staleness": "raise", "threshold": "raise"},
    Outcome.UNFINISHED: {"buffer_size": "lower", "batch": "lower", "min_updates": "lower"},
}
"""Parameters of schedules that cause an outcome, and how to change them; unfinished stands for an update that still
waits."""


def fixes(cause: Outcome, params: object) -> str:
    """How to change the parameters of a schedule that are given and cause an outcome."""
    given = [
        f"{verb} {name}" for name, verb in _FIXES[cause].items() if getattr(params, name, None)
    ]
    return " or ".join(given) or "choose another schedule"


def dispatches_in_vain(clients: int) -> int:
    """Dispatches without an aggregated update, or at one instant, after which a run is stopped."""
    return max(LEAST_STALLED_AFTER, DISPATCHES_PER_CLIENT * clients)


def standstill(events: int, now_ns: int) -> UserError:
    """The error of a run whose clock stands still."""
    return UserError(
        f"{format_count(events)} events took no time: the clock stands still at {now_ns / 1e9:g} s, so the run would "
        "never end",
        where="devices",
        hint="give devices.compute a step time, devices.network a latency or rates, or the schedule a pause",
    )


def beyond_clock(
    client: str,
    download_s: float,
    compute_s: float,
    upload_s: float,
    now_ns: int = 0,
    section: str = "devices",
) -> UserError:
    """The error of a dispatch that ends after the clock does, from the nominal durations of its phases.

    ``client`` names its client, and ``section`` is the one of the scenario about it.
    """
    phases = {"download": download_s, "local steps": compute_s, "upload": upload_s}
    longest = max(phases, key=phases.__getitem__)
    if phases[longest] < LONGEST_S:
        return UserError(
            f"after {format_duration(now_ns / NS_PER_S)}, a dispatch to {client} would last beyond the end of the "
            f"clock, which counts {CLOCK_YEARS} years",
            where="stop",
            hint="end the run earlier: fewer rounds, or stop.simulated_time",
        )
    where, fix = (
        ("compute", "give a shorter step time, or less work")
        if longest == "local steps"
        else (
            "network",
            "a rate without a unit is in bits per second; write, for example, 5Mbps",
        )
    )
    return UserError(
        f"the {longest} of {client} would take {format_duration(phases[longest])}, but the clock ends after "
        f"{CLOCK_YEARS} years",
        where=f"{section}.{where}",
        hint=fix,
    )


def stalled(level: Level, dispatches: int) -> UserError:
    """The error of a run that is stopped: so many dispatches were handed out since the last update was aggregated."""
    lost, waiting, server = level.updates.lost, len(level.updates.held), level.servers[-1]
    counts = {**lost, Outcome.UNFINISHED: waiting}
    cause = max(counts, key=counts.__getitem__)
    if cause is Outcome.DROPPED:
        where = "devices.availability"
        fix = (
            "the clients go offline or decline before they finish: give them less work or more time"
        )
    else:
        section = "server" if server.edge < 0 else "server.edges"
        where, fix = f"{section}.schedule", fixes(cause, server.schedule.params)
    failures = level.workloads.usual[0].failures
    if cause is Outcome.DROPPED and (failures.crash_rate or failures.upload_loss):
        where, fix = "devices.failures", "lower crash_rate or upload_loss"
    if cause is Outcome.DROPPED and level.batteries is not None:
        where = "devices"
        fix += ", or raise energy.battery_j if batteries are too small for a dispatch"
    outcomes = [
        f"{format_count(lost[outcome])} {outcome.label}" for outcome in Outcome if lost.get(outcome)
    ]
    outcomes += [f"{format_count(waiting)} waiting to be aggregated"] * bool(waiting)
    return UserError(
        f"no update was aggregated in the last {format_count(dispatches)} dispatches "
        f"({', '.join(outcomes) or 'all under way'}), so the run may never end",
        where=where,
        hint=f"{fix}; to allow more dispatches without an update, raise stop.stalled_after",
    )
