"""The time plane of a run: its servers on one clock, its limits and its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from typing_extensions import override

from fedsim.network.shared import SharedNetwork
from fedsim.scenario.model import Stop
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import DispatchProcess
from fedsim.simulation.dispatches import (
    Dispatches,
    OnEnd,
    PlannedDispatches,
    SteppedDispatches,
    links_of,
)
from fedsim.simulation.edges import Hierarchy
from fedsim.simulation.engine import LEAVING_ORDER, Engine
from fedsim.simulation.evaluations import Evaluations
from fedsim.simulation.exchange import Exchanges, Member
from fedsim.simulation.facts import Clients
from fedsim.simulation.level import Above, Level, dispatches_in_vain
from fedsim.simulation.story import Server
from fedsim.simulation.updates import Recorder, Updates
from fedsim.simulation.workload import Workloads
from fedsim.vocabulary.timeline import LearningPlane


class Live(Protocol):
    """Clients that are not simulated: the time that passes, and how they get work.

    Attributes:
        engine: makes the calls of the server when they are due.
        server: the server, which is set when it has been built.
    """

    engine: Engine
    server: Server

    def dispatches(self, workloads: Workloads, on_end: OnEnd) -> Dispatches:
        """The runner of dispatches, which calls ``on_end`` when one ends."""


class Simulation(Above):
    """The time plane of one run; the server without edge servers, or the cloud, reports to it.

    Args:
        clients, workloads, stop, evaluations, seed: the scenario; with edge servers, the rules in ``clients`` are
            theirs.
        plane: executes the timeline; None for timing-only runs.
        recorder: takes the rows.
        on_progress: called after every version of the top server.
        hierarchy: the edge servers and the cloud; None without.
        live: the clients, if they are not simulated.

    Attributes:
        server: the server, or the cloud: simulated time, its versions and its rounds.
        ran_out: whether the run ended before its limits, because no event was left.
    """

    def __init__(
        self,
        clients: Clients,
        workloads: Workloads,
        stop: Stop,
        evaluations: Evaluations,
        plane: LearningPlane | None,
        recorder: Recorder,
        *,
        seed: int,
        on_progress: Callable[[], None] | None = None,
        hierarchy: Hierarchy | None = None,
        live: Live | None = None,
    ) -> None:
        self.ran_out = False
        self._stop = stop
        self._on_progress = on_progress
        self._engine = engine = Engine() if live is None else live.engine
        self._evaluations = evaluations
        self._plane = plane
        # A dispatch is fewer than ten events. Many at one instant are meant only if more than time ends the run.
        counts = stop.rounds or stop.dispatches or stop.arrivals or stop.target
        engine.most_at_once = dispatches_in_vain(clients.population.clients) * (10 if counts else 1)
        network = clients.population.network
        updates = Updates(recorder, plane, clients.keeps_from)
        dispatches: Callable[[OnEnd], Dispatches]
        make: Callable[..., DispatchProcess] = DispatchProcess

        def process(dispatch: Dispatch, *times: Any) -> DispatchProcess:
            return make(workloads.of(dispatch), dispatch, *times)

        if live is not None:
            dispatches = partial(live.dispatches, workloads)
        elif clients.exchange is None and not isinstance(network, SharedNetwork):
            dispatches = partial(PlannedDispatches, engine, workloads, process)
        else:
            links = links_of(engine, network)
            if clients.exchange is not None:
                detection_ns = clients.failure_detection_ns or 0
                make = partial(Member, Exchanges(engine, links, clients.exchange, detection_ns))
            dispatches = partial(SteppedDispatches, engine, links, process)
        devices = Level(engine, clients, workloads, stop, plane, updates, dispatches)
        self._levels = [devices]
        if hierarchy is None:
            self.server = Server(devices, clients, self, seed=seed)
            if live is not None:
                live.server = self.server
        else:
            edges, self.server = hierarchy.build(devices, clients, recorder, self, seed)
            self._levels.append(edges)

    def run(self) -> None:
        """Simulate from time 0 until a limit is met or no event is left.

        Raises:
            UserError: the clock ends before that.
        """
        self._evaluations.start(self._engine, self.server, self._plane)
        self.server.schedule.start()
        self._engine.run(self._stop.until_ns)
        self.ran_out = not self._engine.stopped
        if self.ran_out:
            kinds = ("client", "devices"), ("edge server", "server.edges")
            for level, kind in zip(self._levels, kinds, strict=False):
                level.check_clock(*kind)
        for level in self._levels:
            level.finish()
        self._evaluations.finish()

    @override
    def on_version(self, dispatches: Sequence[Dispatch]) -> None:
        self._evaluations.on_version(dispatches)
        if self._on_progress is not None:
            self._on_progress()

    @override
    def ends_after(self, rounds: int) -> bool:
        if self._stop.rounds is None or rounds < self._stop.rounds:
            return False
        self._engine.call_at(self._engine.now_ns, self._engine.stop, LEAVING_ORDER)
        return True

    @property
    def dispatched(self) -> int:
        """Dispatches handed out to devices so far."""
        return self._levels[0].dispatched

    @property
    def arrived(self) -> int:
        """Updates received from devices so far."""
        return self._levels[0].arrived

    @property
    def empty_draws(self) -> int:
        """How often a user's selection has drawn nobody although clients were available."""
        return sum(server.empty_draws for level in self._levels for server in level.servers)
