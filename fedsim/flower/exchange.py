"""Messages between the ServerApp and the nodes, on the devices, links and availability of a population.

A message is handled like a dispatch (:mod:`fedsim.simulation.dispatch_process`): download, work, upload. The amount of
work and the size of the reply are known after running the ClientApp, which happens when the download has ended. A
ClientApp whose message is lost before that never runs.

Training messages are the dispatches of the run. Evaluation and query messages take the time of their node in the same
way, but have no rows in ``dispatches``; the table ``messages`` has a row for each message of any kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from typing_extensions import override

from fedsim.devices.population import Population
from fedsim.flower.client import Answer
from fedsim.flower.clock import RunEnded
from fedsim.flower.messages import Sent
from fedsim.network.base import Direction
from fedsim.network.shared import SharedNetwork
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Failures, Stop
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import DispatchProcess, Plan, device_processes
from fedsim.simulation.dispatcher import Dispatcher
from fedsim.simulation.dispatches import Dispatches, LiveDispatches, OnEnd, at_once
from fedsim.simulation.engine import LAST_ORDER, Engine
from fedsim.simulation.links import SharedLinks
from fedsim.simulation.updates import Ended, Recorder, Updates
from fedsim.simulation.workload import Computation, Workload
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import Ending, Outcome

_NOT_RECORDED = 1 << 50
"""First dispatch id of messages other than training; the ids order simultaneous events, and appear in no table."""


class Kind(Enum):
    """What a message costs besides its transfers."""

    TRAIN = auto()
    """Training: a dispatch of the run."""
    EVALUATE = auto()
    """Evaluation."""
    QUERY = auto()
    """Nothing: queries, and training messages that are known not to train."""


class State(Enum):
    """State of a message."""

    UNDER_WAY = auto()
    """Waiting for its node, or being handled there."""
    REPLIED = auto()
    """Its reply has arrived at the server."""
    UNAVAILABLE = auto()
    """The server knows that its node is gone."""
    LOST = auto()
    """No reply will come, but the server does not know that."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a message: units of ``devices.compute``, bytes of the reply, and time that the ClientApp sleeps."""

    units: int
    reply_bytes: float
    slept_ns: int = 0


@dataclass(slots=True, eq=False)
class Parcel:
    """One message on its way.

    Attributes:
        metadata: Flower's metadata, with the id and the node.
        payload: the serialized message.
        client: its node, as a client of the scenario.
        kind: its category.
        stage: its stage of secure aggregation; None without one.
        expires_ns: end of its time to live.
        least_units: declared units of work; 0 if they are counted.
        size_bytes: its size on the way to the node.
        version: model version when it was sent.
        start: starts the ClientApp; returns a function that waits for the work.
        commit: called when the node has done the work, whether or not the reply arrives.
        state: its state.
        order: number of its latest change of state, counted over all messages.
        dispatch: set when the node gets the message.
        sent: its record.
        late: whether the ServerApp has stopped waiting.
        answer: the result of the ClientApp.
        reply_bytes: declared size of the reply; None if it is counted.
        wait: returned by ``start``, if the ClientApp was started before the download had ended.
        on_answer: called when the server has an answer, a reply or an error.
    """

    metadata: Any
    payload: bytes
    client: int
    kind: Kind
    stage: str | None
    expires_ns: int
    least_units: int
    size_bytes: float
    version: int
    start: Callable[[Parcel], Callable[[], Work]]
    commit: Callable[[Parcel], None]
    sent: Sent
    state: State = State.UNDER_WAY
    order: int = 0
    dispatch: Dispatch | None = None
    late: bool = False
    answer: Answer | None = None
    wait: Callable[[], Work] | None = None
    reply_bytes: float | None = None
    on_answer: Callable[[Parcel], None] | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the server has an answer: the reply, or that the node is gone."""
        return self.state in (State.REPLIED, State.UNAVAILABLE)


class _ParcelWorkload(Workload):
    """The rules of one message, whose work is known once its ClientApp has run."""

    def __init__(self, population: Population, failures: Failures, seed: int, parcel: Parcel):
        super().__init__(
            population, failures, parcel.size_bytes, 0.0, send_partial_work=False, seed=seed
        )
        # The number of steps is requested when the download has ended.
        self.shortens, self.plain = True, False
        self._parcel = parcel
        self._units: int | None = None
        self._slept_ns = 0
        self.only_download = False

    @property
    def dispatch(self) -> Dispatch:
        """The message as a dispatch."""
        assert self._parcel.dispatch is not None
        return self._parcel.dispatch

    def can_work(self, work: Computation) -> bool:
        """Whether the message's declared work ends before the node crashes, or leaves and drops it."""
        least, client = self._parcel.least_units, work.client
        if not least:
            return True
        end_ns, _ = super().local_steps(work, least, -1)
        crash_ns = self.crash_after_ns(client, work.sequence)
        until_ns = self.after_work_ns(client, work.start_ns, crash_ns)
        if self.drops:
            availability = self.population.availability
            until_ns = min(until_ns, availability.online_until(client, work.start_ns))
        return end_ns < NEVER and end_ns <= until_ns

    @override
    def affordable_steps(self, work: Computation, steps: int, deadline_ns: int | None) -> int:
        if self.only_download:
            return 0
        if self._units is None:
            parcel = self._parcel
            if parcel.wait is not None or self.can_work(work):
                done = (parcel.wait or parcel.start(parcel))()
                self._units, self.bytes_up = done.units, done.reply_bytes
                self._slept_ns = done.slept_ns
            else:
                self._units = parcel.least_units
            self.dispatch.steps = self._units
        # A dispatch without steps would be declined; for a message without work, local_steps gives the step no time.
        return max(1, self._units)

    @override
    def local_steps(self, work: Computation, steps: int, online_until_ns: int) -> tuple[int, int]:
        work = work._replace(start_ns=work.start_ns + self._slept_ns)
        if not self._units:
            return work.start_ns, steps
        return super().local_steps(work, steps, online_until_ns)


class _PlannedParcels(Dispatches):
    """Messages on links that are not shared: one event at the end of the download, and one at the end."""

    def __init__(self, engine: Engine, parcels: _Parcels, on_end: OnEnd) -> None:
        self._engine = engine
        self._parcels = parcels
        self._on_end = on_end
        self._under_way: dict[int, _ParcelWorkload] = {}

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        workload = self._parcels.of(dispatch)
        self._under_way[dispatch.dispatch_id] = workload
        workload.only_download = True
        plan = self._plan(dispatch)
        if plan.downloaded_ns < 0 or plan.end_ns >= NEVER:
            self._end_at(dispatch, plan)
            return
        # Several nodes may run their ClientApps at once.
        self._parcels.start_early(dispatch, plan.downloaded_ns)
        self._engine.call_at(
            plan.downloaded_ns, lambda: self._on_downloaded(dispatch), dispatch.dispatch_id
        )

    def _on_downloaded(self, dispatch: Dispatch) -> None:
        workload = self._under_way[dispatch.dispatch_id]
        workload.only_download = False
        self._end_at(dispatch, self._plan(dispatch))

    def _plan(self, dispatch: Dispatch, stop_ns: int = NEVER) -> Plan:
        workload = self._parcels.of(dispatch)
        online_until_ns = workload.population.availability.online_until(
            dispatch.client, dispatch.dispatched_ns
        )
        return at_once(DispatchProcess(workload, dispatch, None, online_until_ns, stop_ns))

    def _end_at(self, dispatch: Dispatch, plan: Plan) -> None:
        if plan.end_ns < NEVER:
            self._engine.call_at(
                plan.end_ns, lambda: self._end(dispatch, plan), dispatch.dispatch_id
            )

    def _end(self, dispatch: Dispatch, plan: Plan) -> None:
        del self._under_way[dispatch.dispatch_id]
        self._on_end(dispatch, plan)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        del self._under_way[dispatch.dispatch_id]
        return self._plan(dispatch, self._engine.now_ns)._replace(ending=Ending.STOPPED)


class _ContendedParcels(LiveDispatches):
    """Messages on shared links, on which the end of a download is not known in advance."""

    def __init__(
        self, engine: Engine, parcels: _Parcels, network: SharedNetwork, on_end: OnEnd
    ) -> None:
        links = SharedLinks(engine, network)
        super().__init__(engine, links, device_processes(parcels.of), on_end)
        self._network = network
        self._parcels = parcels

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        # If the download ends in time even on the busiest links, the ClientApp can be started now.
        workload = self._parcels.of(dispatch)
        latest_ns = self._network.latest_end_ns(
            dispatch.client, Direction.DOWN, workload.bytes_down, self._engine.now_ns
        )
        if latest_ns <= online_until_ns and workload.population.batteries is None:
            self._parcels.start_early(dispatch, latest_ns)
        super().begin(dispatch, deadline_ns, online_until_ns)


class _Parcels:
    """The messages being handled, and the workload of each."""

    def __init__(
        self, training: Population, evaluating: Population, failures: Failures, seed: int
    ) -> None:
        self._populations = {Kind.EVALUATE: evaluating}
        self._training, self._failures, self._seed = training, failures, seed
        self.of_dispatch: dict[int, Parcel] = {}
        self._workloads: dict[int, _ParcelWorkload] = {}

    def of(self, dispatch: Dispatch) -> _ParcelWorkload:
        """The workload of a message."""
        workload = self._workloads.get(dispatch.dispatch_id)
        if workload is None:
            parcel = self.of_dispatch[dispatch.dispatch_id]
            population = self._populations.get(parcel.kind, self._training)
            workload = _ParcelWorkload(population, self._failures, self._seed, parcel)
            self._workloads[dispatch.dispatch_id] = workload
        return workload

    def start_early(self, dispatch: Dispatch, downloaded_ns: int) -> None:
        """Start the ClientApp of a message when it is dispatched, unless the message will be lost; see the module.

        Args:
            dispatch: the message; its download will end.
            downloaded_ns: when the download will end.
        """
        workload = self.of(dispatch)
        if workload.can_work(workload.computation(dispatch, downloaded_ns)):
            parcel = self.of_dispatch[dispatch.dispatch_id]
            parcel.wait = parcel.start(parcel)

    def remove(self, dispatch: Dispatch) -> Parcel:
        """Forget a message that has ended."""
        self._workloads.pop(dispatch.dispatch_id, None)
        return self.of_dispatch.pop(dispatch.dispatch_id)


class Exchange:
    """The nodes, and the messages on their way to and from them.

    Args:
        population: the nodes' devices.
        evaluating: the same, with the time of a unit of evaluation.
        failures, seed: those of the scenario.
        stop: when the run ends.
        detection_ns: time after which the server learns that a node is gone; None if it never does.
        waits_for_offline: whether messages wait for nodes that are offline.
        recorder: takes the rows.

    Attributes:
        version, rounds, dispatched, arrived: numbers of versions made, rounds closed, training messages delivered, and
            their replies.
        refused: messages refused because their node was offline.
        messages: records of all messages, in order of sending.
        on_version: called after each new version.
    """

    def __init__(
        self,
        population: Population,
        evaluating: Population,
        failures: Failures,
        stop: Stop,
        recorder: Recorder,
        *,
        seed: int,
        detection_ns: int | None,
        waits_for_offline: bool,
    ) -> None:
        self.population = population
        self.engine = engine = Engine()
        self.version = self.rounds = self.dispatched = self.arrived = self.refused = 0
        self.messages: list[Sent] = []
        self.on_version: Callable[[], None] = lambda: None
        self._stop = stop
        self._detection_ns = detection_ns
        self._waits_for_offline = waits_for_offline
        self._queues: dict[int, deque[Parcel]] = {}
        # Busy nodes, and nodes with a message waiting.
        self._engaged: set[int] = set()
        self._sequences = [0] * population.clients
        self._other_sequences = [0] * population.clients
        self._others = self._changes = 0
        self._over = False
        self._updates = Updates(recorder)
        self._dispatcher = Dispatcher(
            engine,
            population.availability,
            Stream(seed, Purpose.SELECTION),
            self._begin,
            lambda: None,
            is_patient=True,
        )
        self._parcels = _Parcels(population, evaluating, failures, seed)
        self._dispatches: Dispatches = (
            _ContendedParcels(engine, self._parcels, population.network, self._on_end)
            if isinstance(population.network, SharedNetwork)
            else _PlannedParcels(engine, self._parcels, self._on_end)
        )
        if stop.until_ns is not None:
            engine.call_at(stop.until_ns, self.stop, LAST_ORDER)

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the start."""
        return self.engine.clock.now

    def stop(self) -> None:
        """End the run when the current event has been processed."""
        self._over = True

    # -- time ---------------------------------------------------------------------------------------------------------

    def run_until(self, done: Callable[[], bool], until_ns: int = NEVER) -> None:
        """Let simulated time pass until ``done`` holds or the time is up.

        Events at ``until_ns`` itself are included.

        Raises:
            RunEnded: the run has ended.
        """
        reached: list[bool] = []
        timer = None
        if until_ns < NEVER:
            at = max(until_ns, self.now_ns)
            timer = self.engine.call_at(at, lambda: reached.append(True), LAST_ORDER - 1)
        step = self.engine.env.step
        while not self._over and not reached and not done():
            step()
        if timer is not None:
            timer.cancel()
        if self._over:
            raise RunEnded

    @property
    def under_way(self) -> bool:
        """Whether any message is on its way."""
        return bool(self._engaged)

    # -- the course of a message --------------------------------------------------------------------------------------

    def is_online(self, client: int) -> bool:
        """Whether a node is online now."""
        return self.population.availability.is_online(client, self.now_ns)

    def online_clients(self) -> list[int]:
        """Nodes that are online now, ascending."""
        online: list[int] = self.population.availability.online_clients(self.now_ns).tolist()
        return online

    def send(self, parcel: Parcel) -> None:
        """Send a message; its node gets it when it is online and has handled earlier ones."""
        client = parcel.client
        self.messages.append(parcel.sent)
        if not self._waits_for_offline and not self.is_online(client):
            self.refused += 1
            parcel.sent.outcome = "refused"
            self._change(parcel, State.UNAVAILABLE)
            return
        self._queues.setdefault(client, deque()).append(parcel)
        if client not in self._engaged:
            self._engaged.add(client)
            self._dispatcher.dispatch(client, steps=0)

    def _begin(
        self, client: int, now: int, online_until_ns: int, steps: Any, deadline: Any, then: Any
    ) -> None:
        queue = self._queues[client]
        while queue and queue[0].expires_ns <= now:
            queue[0].sent.outcome = "expired"
            self._change(queue.popleft(), State.LOST)
        if not queue:
            self._next(client)
            return
        parcel = queue.popleft()
        if parcel.kind is Kind.TRAIN:
            dispatch_id, sequence = self.dispatched, self._sequences[client]
            self._sequences[client] += 1
            self.dispatched += 1
            parcel.sent.dispatch_id = dispatch_id
        else:
            dispatch_id, sequence = _NOT_RECORDED + self._others, self._other_sequences[client]
            sequence += _NOT_RECORDED
            self._other_sequences[client] += 1
            self._others += 1
        parcel.dispatch = dispatch = Dispatch(
            dispatch_id, client, sequence, parcel.version, self.rounds, 0, now, client
        )
        self._parcels.of_dispatch[dispatch_id] = parcel
        if self.population.batteries is not None:
            self.population.batteries.begin(client, now)
        self._dispatches.begin(dispatch, None, online_until_ns)
        if self.dispatched == self._stop.dispatches:
            self.engine.call_at(now, self.stop)

    def _on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        parcel = self._parcels.remove(dispatch)
        plan = self._note(parcel, dispatch, plan)
        if plan.computed_ns >= 0:
            parcel.commit(parcel)
        self._release(dispatch.client, plan)
        trained = parcel.kind is Kind.TRAIN
        if plan.ending is Ending.ARRIVED:
            if trained:
                self.arrived += 1
                dispatch.arrived_ns, dispatch.steps_done = plan.end_ns, plan.steps_done
                dispatch.staleness = self.version - dispatch.version
                self._updates.held[dispatch] = plan
            expired = plan.end_ns > parcel.expires_ns
            parcel.sent.replied_ns = plan.end_ns
            parcel.sent.outcome = "late" if parcel.late or expired else "replied"
            if trained and (parcel.late or expired):
                self._discard(dispatch, late=True)
            self._change(parcel, State.LOST if expired else State.REPLIED)
            if trained and self.arrived == self._stop.arrivals:
                self.stop()
        else:
            parcel.sent.outcome = "dropped"
            if trained:
                self._updates.close(dispatch, plan, Outcome.DROPPED, self.now_ns)
            if self._detection_ns is None:
                self._change(parcel, State.LOST)
            else:
                self.engine.call_at(
                    self.now_ns + self._detection_ns,
                    lambda: self._change(parcel, State.UNAVAILABLE),
                )

    def _note(self, parcel: Parcel, dispatch: Dispatch, plan: Plan) -> Plan:
        """Record the course of a message, whatever its kind; returns it with the steps that were assigned at most."""
        plan = plan._replace(steps_done=min(plan.steps_done, dispatch.steps))
        parcel.sent.ended = Ended(dispatch, plan, Outcome.UNFINISHED, -1, 0, self.now_ns)
        return plan

    def _release(self, client: int, plan: Plan) -> None:
        """Hand a node its next message; with a low battery, only once it has recharged."""
        batteries, now = self.population.batteries, self.now_ns
        if batteries is not None:
            ready_ns = batteries.end(client, now, self.population.power.joules(client, plan[7:]))
            if ready_ns > now:
                self.engine.call_at(ready_ns, lambda: self._next(client))
                return
        self._next(client)

    def _next(self, client: int) -> None:
        self._dispatcher.release(client)
        if self._queues[client]:
            self._dispatcher.dispatch(client, steps=0)
        else:
            self._engaged.remove(client)

    def _change(self, parcel: Parcel, state: State) -> None:
        self._changes += 1
        parcel.state, parcel.order = state, self._changes
        if parcel.on_answer is not None and parcel.is_answered:
            parcel.on_answer(parcel)

    # -- replies at the server ----------------------------------------------------------------------------------------

    def give_up(self, parcels: Iterable[Parcel]) -> None:
        """Stop waiting for messages; replies that still arrive are late."""
        for parcel in parcels:
            parcel.late = True
            if parcel.state is State.REPLIED:
                parcel.sent.outcome = "late"
                if parcel.dispatch in self._updates.held:
                    self._discard(parcel.dispatch, late=True)

    def discard(self, parcel: Parcel) -> None:
        """Record that a reply to a training message brings no update."""
        if parcel.dispatch is not None and parcel.dispatch in self._updates.held:
            self._discard(parcel.dispatch)

    def _discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        outcome = Outcome.LATE if late else Outcome.DISCARDED
        self._updates.close(dispatch, self._updates.held.pop(dispatch), outcome, self.now_ns)

    def make_version(self, parcels: Iterable[Parcel]) -> None:
        """Record a new model version from the replies to training messages that were not used before."""
        dispatches = [
            parcel.dispatch
            for parcel in parcels
            if parcel.dispatch is not None and parcel.dispatch in self._updates.held
        ]
        if not dispatches:
            return
        self.version += 1
        self._updates.aggregate(
            dispatches, None, None, version=self.version, round_=self.rounds, now_ns=self.now_ns
        )
        self.on_version()

    def close_round(self) -> None:
        """Count a round."""
        self.rounds += 1
        if self.rounds == self._stop.rounds:
            self._over = True

    def finish(self) -> None:
        """Record the messages that are still under way, and the replies that entered no version."""
        now = self.now_ns
        for dispatch, stopped in self._dispatches.stop_all():
            plan = self._note(self._parcels.of_dispatch[dispatch.dispatch_id], dispatch, stopped)
            if dispatch.dispatch_id < _NOT_RECORDED:
                self._updates.close(dispatch, plan, Outcome.UNFINISHED, now)
        for dispatch in list(self._updates.held):
            self._discard(dispatch)
