"""A level of clients, and what the servers share that dispatch work to them.

A run with a single server has one level: the devices. With edge servers, the devices are the clients of the edge
servers, and the edge servers are the clients of the cloud, the second level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.scenario.model import Stop
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.dispatches import Dispatches, OnEnd
from fedsim.simulation.engine import Engine
from fedsim.simulation.facts import Clients
from fedsim.simulation.updates import Updates
from fedsim.simulation.workload import Workloads
from fedsim.units import CLOCK_YEARS, LONGEST_S, NEVER, NS_PER_S
from fedsim.vocabulary.formatting import format_count, format_duration
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import LearningPlane

if TYPE_CHECKING:
    from fedsim.scheduling.base import Dispatch
    from fedsim.simulation.story import Server

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


class Above(Protocol):
    """What a server reports to: the run, or for an edge server itself, as a client of the cloud."""

    def on_version(self, dispatches: Sequence[Dispatch]) -> None:
        """Note a version made of the updates of these dispatches; does nothing unless overridden."""
        return

    def ends_after(self, rounds: int) -> bool:
        """Whether the run ends when the server has closed so many rounds."""


class Level:
    """The clients of one level.

    Args:
        engine: simulated time.
        clients, workloads, stop: the clients, their work, and when it ends.
        plane: executes the timeline; None for timing-only runs.
        updates: holds and records the updates of these clients.
        dispatches: makes the runner of dispatches, which calls a function when one ends by itself.

    Attributes:
        servers: the servers that dispatch to these clients, by the number of the edge server; a single server is the
            last, so that -1 names it.
        dispatched, arrived: dispatches handed out, and updates received so far.
        sequences: number of dispatches of each client.
        history: what clients have from earlier dispatches; None if that does not matter.
        check_at: number of dispatches at which :meth:`check_progress` is due.
    """

    def __init__(
        self,
        engine: Engine,
        clients: Clients,
        workloads: Workloads,
        stop: Stop,
        plane: LearningPlane | None,
        updates: Updates,
        dispatches: Callable[[OnEnd], Dispatches],
    ) -> None:
        population = clients.population
        self.engine = engine
        self.population = population
        self.time_budget_ns = clients.work.time_budget_ns
        steps = clients.work.steps
        self.same_steps = int(steps[0]) if steps.min() == steps.max() else None
        self.history = workloads.history
        self.is_patient = stop.simulated_time is not None
        self.plane = plane
        self.updates = updates
        self.batteries = population.batteries
        self.servers: list[Server] = []
        self.dispatched = self.arrived = 0
        self.sequences = [0] * population.clients
        # No number of dispatches equals -1.
        self.last_dispatch = stop.dispatches or -1
        self.last_arrival = stop.arrivals or -1
        self.workloads = workloads
        self._stalled_after = stop.stalled_after or dispatches_in_vain(population.clients)
        self.check_at = self._stalled_after
        self.dispatched_at_aggregation = 0
        self.dispatches = dispatches(self._on_end)

    def _on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        self.servers[dispatch.edge].on_end(dispatch, plan)

    def check_progress(self) -> None:
        """Stop a run in which too many dispatches were handed out since an update was aggregated."""
        count = self.dispatched - self.dispatched_at_aggregation
        if count >= self._stalled_after:
            raise stalled(self, count)
        self.check_at = self.dispatched_at_aggregation + self._stalled_after

    def check_clock(self, who: str, section: str) -> None:
        """Refuse the end of a run without an event to come, if clients are at work that would end after the clock does.

        Other work never ends: that of a client that goes offline for good, or has a link without a rate.

        Args:
            who: what the clients of this level are called.
            section: the section of the scenario about them.
        """
        now_ns, population = self.engine.now_ns, self.population
        for dispatch in self.dispatches.all():
            client, workload = dispatch.client_id, self.workloads.of(dispatch)
            wire_s = partial(population.network.nominal_wire_s, client)
            phases = {
                "download": wire_s(Direction.DOWN, workload.bytes_down),
                "local steps": dispatch.steps * float(population.compute.step_s[client]),
                "upload": wire_s(Direction.UP, workload.bytes_up),
            }
            # These are nominal: half of the clock allows for jitter.
            if not (NEVER / 2 - now_ns) / NS_PER_S <= sum(phases.values()) < math.inf:
                continue
            longest = max(phases, key=phases.__getitem__)
            if phases[longest] < LONGEST_S:
                raise UserError(
                    f"after {format_duration(now_ns / NS_PER_S)}, a dispatch to {who} {client} would last beyond the "
                    f"end of the clock, which counts {CLOCK_YEARS} years",
                    where="stop",
                    hint="end the run earlier: fewer rounds, or stop.simulated_time",
                )
            where, fix = (
                "network",
                "send less, or give a higher rate; a rate without a unit is in bits per second; write 5Mbps",
            )
            if longest == "local steps":
                where, fix = "compute", "give a shorter step time, or less work"
            raise UserError(
                f"the {longest} of {who} {client} would take {format_duration(phases[longest])}, but the clock ends "
                f"after {CLOCK_YEARS} years",
                where=f"{section}.{where}",
                hint=fix,
            )

    def finish(self) -> None:
        """Record the dispatches that are under way, or whose updates wait, when the run ends."""
        for dispatch, plan in [*self.dispatches.stop_all(), *self.updates.held.items()]:
            self.updates.close(dispatch, plan, Outcome.UNFINISHED, self.engine.now_ns)
        self.updates.held.clear()


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
