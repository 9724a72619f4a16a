"""Edge servers: each serves its clients as a single server does, and works for the cloud as a client does.

The work of an edge server is :meth:`EdgeProcess.work`: it makes the model of the cloud its own, and does a number of
rounds with its clients; it then uploads the difference. Between two dispatches it is paused: it hands out no work, and
what its schedule requests meanwhile happens when the next model has come.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from typing_extensions import override

from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Stop
from fedsim.scheduling.base import Dispatch, Schedule, Timer
from fedsim.simulation.dispatch_process import Activity, DispatchProcess, JointWork, Reached
from fedsim.simulation.dispatcher import Request
from fedsim.simulation.dispatches import SteppedDispatches, links_of
from fedsim.simulation.engine import FLOW_ORDER, LEAVING_ORDER, TIMER_ORDER, ScheduledCall
from fedsim.simulation.facts import Clients
from fedsim.simulation.level import Above, Level
from fedsim.simulation.story import Server
from fedsim.simulation.updates import Recorder, Updates
from fedsim.simulation.workload import Workload, Workloads
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.outcomes import Ending
from fedsim.vocabulary.timeline import Adopt, Gather, LearningPlane, Train


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The edge servers of a run, and the cloud above them.

    Attributes:
        clients: the edge servers as clients of the cloud, with its rules; their local steps are rounds.
        workload: the transfers of an edge server.
        members: the clients that are ever at each edge server, by number.
        aggregation_ns: duration of an aggregation at an edge server.
        sends_partial_work: whether an edge server that expects to miss the deadline of the cloud does fewer rounds.
        moves: time (ns), client and new edge server of each move of a client, in order.
        online: when the members of each edge server are online and there; as the population if they do not move.
        drops: whether a client that moves loses the work that it has not finished.
    """

    clients: Clients
    workload: Workload
    members: Sequence[Ints]
    aggregation_ns: int
    sends_partial_work: bool
    moves: Sequence[tuple[int, int, int]] = ()
    online: Sequence[AvailabilityIndex] = ()
    drops: bool = False

    def build(
        self, devices: Level, clients: Clients, recorder: Recorder, top: Above, seed: int
    ) -> tuple[Level, Server]:
        """The level of the edge servers, which dispatch to ``devices``, and the cloud above them."""
        engine, plane = devices.engine, devices.plane
        clients = replace(clients, aggregation_ns=self.aggregation_ns)
        models: dict[int, int] = {}
        moves = Moves(self, devices) if self.moves else None
        edges: list[EdgeServer] = []
        if len(self.members) > 1:
            # All clients are looked up at once, which costs less than those of one edge server after another.
            clients.population.availability.online_clients(0)
        for number, members in enumerate(self.members):
            online = self.online[number] if moves else clients.population.availability.of(members)
            own = replace(clients, members=members, availability_of_members=online)
            # A single edge server draws as a server without a cloud does.
            own_seed = _seed(seed, number) if number else seed
            place = self, models, devices, own, own_seed, number
            edges.append(EdgeServer(*place) if moves is None else MobileEdgeServer(moves, *place))

        def process(dispatch: Dispatch, *times: Any) -> EdgeProcess:
            return EdgeProcess(edges[dispatch.client], self.workload, dispatch, *times)

        links = links_of(engine, self.clients.population.network)
        level = Level(
            engine,
            self.clients,
            Workloads([self.workload]),
            Stop.model_construct(),  # the cloud stops the run by its rounds, and the clients by their number or time
            plane,
            _UpdatesOfEdges(recorder, plane, models),
            partial(SteppedDispatches, engine, links, process),
        )
        return level, Server(level, self.clients, top, seed=_seed(seed, 0))


def _seed(seed: int, number: int) -> int:
    """The seed of the draws of an edge server; 0 stands for the cloud."""
    return Stream(seed, Purpose.EDGES).hash(number)


class EdgeServer(Server, Above):
    """A server of its clients, and a client of the cloud, between two dispatches of which it is paused.

    A schedule that finds it paused asks to be called at ``busy_until_ns``, which is NEVER; that call is made when the
    server resumes. Calls that fall due, updates that arrive and failures that are noticed meanwhile reach the schedule
    then, too.

    Attributes:
        rounds_done: rounds done since the last model came from the cloud.
        is_done: whether these are all rounds of the dispatch.
    """

    _call: ScheduledCall

    def __init__(
        self,
        hierarchy: Hierarchy,
        models: dict[int, int],
        level: Level,
        clients: Clients,
        seed: int,
        number: int,
    ) -> None:
        self._hierarchy = hierarchy
        # By dispatch of the cloud, the number of the model that it ends with.
        self._models = models
        self.rounds_done = 0
        self.is_done = True
        self._rounds_before = self._rounds = self._round_began_ns = 0
        self._postponed: list[Callable[[], None]] = []
        self._epoch = 0
        self._is_fresh = True
        super().__init__(level, clients, self, seed=seed, edge=number)
        self._running = self.schedule
        self._pause()

    # -- as a client of the cloud -------------------------------------------------------------------------------------

    def work(
        self, dispatch: Dispatch, deadline_ns: int | None, on_done: Callable[[], None]
    ) -> Callable[[], None]:
        """Adopt the model of the cloud, and do the rounds of a dispatch; returns a function that abandons them."""
        self._dispatch, self._deadline_ns, self._on_done = dispatch, deadline_ns, on_done
        self._rounds_before, self.rounds_done, self.is_done = self._rounds, 0, False
        self._round_began_ns = now = self._clock.now
        # As any round, the first one begins after all ends of the instant: their clients are free.
        self._call = self._engine.call_at(now, self._resume, TIMER_ORDER)
        return self._abandon

    @override
    def ends_after(self, rounds: int) -> bool:
        self._rounds = rounds
        if self.is_done:
            return False
        self.rounds_done = rounds - self._rounds_before
        now = self._clock.now
        if self.rounds_done >= self._dispatch.steps or self._would_be_late(now):
            self.is_done = True
            self._pause()
            dispatch_id, model = self._dispatch.dispatch_id, self.version + self.adopted
            self._models[dispatch_id] = model
            if self._plane is not None:
                self._plane.hold(model, self.edge)
            ends_ns = now + self._hierarchy.aggregation_ns
            self._call = self._engine.call_at(ends_ns, self._on_done, dispatch_id)
        self._round_began_ns = now
        return False

    def _would_be_late(self, now: int) -> bool:
        """Whether another round that takes as long as the last one would miss the deadline of the cloud."""
        if self._deadline_ns is None or not self._hierarchy.sends_partial_work:
            return False
        workload = self._hierarchy.workload
        upload_ns = workload.population.upload_estimate_ns(self.edge, workload.bytes_up)
        return 2 * now - self._round_began_ns + upload_ns > self._deadline_ns

    def _abandon(self) -> None:
        """Pause, stop all clients, and discard what they have sent; the next model is given to a fresh schedule."""
        self.is_done = False
        self._call.cancel()
        self._epoch += 1
        self._postponed = []
        self._undetected.clear()
        self._running = self._clients.schedule(self, self._selection)
        self._is_fresh = True
        self._pause()
        self.withdraw_all()
        for dispatch in self._dispatches.all():
            if dispatch.edge == self.edge:
                self.cut(dispatch)
        for dispatch in [one for one in self._updates.held if one.edge == self.edge]:
            self.discard(dispatch)

    # -- as a server --------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        """Hand out no more work, and let what happens wait for the schedule."""
        running, postponed = self._running, self._postponed
        self.busy_until_ns = NEVER
        paused = SimpleNamespace(
            params=running.params,
            on_arrival=lambda dispatch: postponed.append(partial(running.on_arrival, dispatch)),
            on_failure=lambda dispatch: postponed.append(partial(running.on_failure, dispatch)),
        )
        self.schedule = cast(Schedule, paused)

    def _resume(self) -> None:
        """Begin to work from the model that has come from the cloud."""
        if self._plane is not None:
            model, version = self.version + self.adopted + 1, self._dispatch.version
            self._plane.submit(Adopt(self.edge, model, version, self._clock.now / NS_PER_S))
        self.adopted += 1
        self.schedule = self._running
        self.dispatch_waiting()
        postponed, self._postponed = self._postponed, []
        if self._is_fresh:
            self._is_fresh = False
            self.schedule.start()
        # These may complete the rounds, and pause the server again.
        while postponed and self.busy_until_ns < NEVER:
            postponed.pop(0)()
        self._postponed[:0] = postponed

    @override
    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        epoch = self._epoch

        def call() -> None:
            if epoch != self._epoch:
                return
            if self.busy_until_ns < NEVER:
                callback()
            else:
                # A version made now would be lost when the next model comes.
                self._postponed.append(timer.run)

        if time_ns < NEVER:
            timer = self._engine.call_at(time_ns, call)
            return timer
        postponed = ScheduledCall(self._engine.env, call)
        self._postponed.append(postponed.run)
        return postponed


class MobileEdgeServer(EdgeServer):
    """The server of an edge between which clients move."""

    def __init__(self, moves: Moves, *place: Any) -> None:
        super().__init__(*place)
        self._moves = moves
        assert self._ids is not None
        self._client_ids = self._ids
        self._numbers = {client: number for number, client in enumerate(self._ids)}

    @override
    def _begin(self, client: int, now: int, online_until_ns: int, request: Request) -> None:
        steps, deadline_ns, on_dispatched = request

        def note(dispatch: Dispatch) -> None:
            self._moves.last[dispatch.client_id] = dispatch
            if on_dispatched is not None:
                on_dispatched(dispatch)

        # A client that moves on may finish its work.
        until_ns = self._population.availability.online_until(self._client_ids[client], now)
        super()._begin(client, now, until_ns, (steps, deadline_ns, note))

    @override
    def release(self, client: int) -> None:
        super().release(client)
        self._moves.on_release(self.edge, self._client_ids[client])

    def wait_for(self, client: int) -> None:
        """Give a client of the run no work until :meth:`vacate`."""
        self.occupy(self._numbers[client])

    def vacate(self, client: int) -> None:
        """Let it have work again."""
        number = self._numbers[client]
        super().release(number)
        self.look_again(number)


class Moves:
    """Moves clients between edge servers.

    One that moves during its work loses it, or finishes it for the edge server that it has left; until then, the new
    one gives it none. Work that ends at the very instant is finished.

    Attributes:
        last: the dispatch that each client works on, by client of the run.
    """

    def __init__(self, hierarchy: Hierarchy, level: Level) -> None:
        self.last: dict[int, Dispatch] = {}
        self._level = level
        self._drops = hierarchy.drops
        self._moves = iter(hierarchy.moves)
        # By client, the edge server that waits for the end of its dispatch.
        self._waits: dict[int, MobileEdgeServer] = {}
        self._next()

    def _next(self) -> None:
        time_ns, client, edge = next(self._moves, (NEVER, -1, -1))
        move = partial(self._move, client, edge)
        self._level.engine.call_at(min(time_ns, NEVER), move, FLOW_ORDER - 1)

    def _move(self, client: int, edge: int) -> None:
        self._end_of_wait(client)
        dispatch = self.last.get(client)
        if dispatch is not None:
            if edge != dispatch.edge:
                self._waits[client] = server = cast(MobileEdgeServer, self._level.servers[edge])
                server.wait_for(client)
            if self._drops:
                engine = self._level.engine
                engine.call_at(engine.now_ns, partial(self._drop, dispatch), LEAVING_ORDER)
        self._next()

    def _drop(self, dispatch: Dispatch) -> None:
        dispatches = self._level.dispatches
        if dispatches.is_under_way(dispatch):
            plan = dispatches.stop(dispatch)._replace(ending=Ending.OFFLINE)
            self._level.servers[dispatch.edge].on_end(dispatch, plan)

    def on_release(self, edge: int, client: int) -> None:
        """Note that a client is done with its work for an edge server."""
        if client in self.last and self.last[client].edge == edge:
            del self.last[client]
            self._end_of_wait(client)

    def _end_of_wait(self, client: int) -> None:
        server = self._waits.pop(client, None)
        if server is not None:
            server.vacate(client)


class EdgeProcess(DispatchProcess):
    """A dispatch to an edge server, whose work is rounds."""

    def __init__(self, edge: EdgeServer, *args: Any) -> None:
        super().__init__(*args)
        self.edge = edge

    @override
    def work(self) -> Generator[Activity, Reached, bool]:
        """Do the rounds with the clients, unless the edge server fails."""
        workload, edge, dispatch = self.workload, self.edge, self.dispatch
        until_ns = min(self.stop_ns, self.online_until_ns if workload.drops else NEVER)
        begin = partial(edge.work, dispatch, self.deadline_ns)
        self.now_ns, _ = yield JointWork(until_ns, begin)
        self.steps_done = edge.rounds_done
        self.compute_ns = workload.time_at_work_ns(dispatch.client, self.downloaded_ns, self.now_ns)
        if not edge.is_done and self.now_ns < self.stop_ns:
            self.ending = Ending.OFFLINE
        return edge.is_done


class _UpdatesOfEdges(Updates):
    """The updates of edge servers: differences of models that the learning plane has already."""

    def __init__(
        self, recorder: Recorder, plane: LearningPlane | None, models: dict[int, int]
    ) -> None:
        super().__init__(recorder, plane)
        self._append = cast(Any, recorder).append_edge_dispatch
        self._models = models

    @override
    def _work(self, train: Train) -> Train | Gather:
        return Gather(train, self._models.pop(train.dispatch_id))

    @override
    def _drop(self, dispatch: Dispatch, plane: LearningPlane) -> None:
        super()._drop(dispatch, plane)
        model = self._models.pop(dispatch.dispatch_id, None)
        if model is not None:
            plane.drop(model, dispatch.client)
