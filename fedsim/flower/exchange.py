"""Messages between the ServerApp and the nodes, on the devices, links and availability of a population.

A message is handled like a dispatch (:mod:`fedsim.simulation.dispatch_process`): download, work, upload. The amount of
work and the size of the reply are known after running the ClientApp, which happens when the download has ended. A
ClientApp whose message is lost before that never runs.

Training messages are the dispatches of the run. Evaluation and query messages take the time of their node in the same
way, but have no rows in ``dispatches``; the table ``messages`` has a row for each message of any kind.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from fedsim.devices.population import Population
from fedsim.flower.client import Answer
from fedsim.flower.clock import RunEnded
from fedsim.network.base import Direction
from fedsim.network.shared import SharedNetwork
from fedsim.randomness import Purpose, Stream
from fedsim.runs.schema import MESSAGE_INSTANTS, MESSAGES, with_columns
from fedsim.runs.tables import from_columns, null_if_negative
from fedsim.scenario.model import Scenario, Stop
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import DispatchProcess, Plan
from fedsim.simulation.dispatcher import Dispatcher, Request
from fedsim.simulation.dispatches import SteppedDispatches, links_of
from fedsim.simulation.engine import LAST_ORDER, Engine
from fedsim.simulation.updates import Ended, Recorder, Updates
from fedsim.simulation.workload import Computation, Workload
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Array
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


class Work(NamedTuple):
    """The work of a message: units of ``devices.compute``, bytes of the reply, and time that the ClientApp sleeps."""

    units: int
    reply_bytes: float
    slept_ns: int = 0


@dataclass(slots=True, eq=False)
class Sent:
    """One message that was sent; see :data:`fedsim.runs.schema.MESSAGES`.

    Attributes:
        replied_ns: arrival of its reply; -1 until then.
        ended: its course and its work on the node; None if it has not reached the front of the node's queue.
    """

    kind: str
    client: int
    sent_ns: int
    sent_hash: str
    reply_hash: str | None = None
    dispatch_id: int = -1
    replied_ns: int = -1
    failed: bool = False
    outcome: str = "unfinished"
    ended: Ended | None = None


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
        replied: whether its reply is at the server; False if the server knows that its node is gone, None before. Of a
            message that is lost, the server learns nothing.
        order: number of the latest change, counted over all messages.
        dispatch: set when the node gets the message.
        sent: its record.
        late: whether the ServerApp has stopped waiting.
        answer: the result of the ClientApp.
        reply_bytes: declared size of the reply; None if it is counted.
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
    replied: bool | None = None
    order: int = 0
    dispatch: Dispatch | None = None
    late: bool = False
    answer: Answer | None = None
    reply_bytes: float | None = None
    on_answer: Callable[[Parcel], None] | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the server has an answer: the reply, or that the node is gone."""
        return self.replied is not None


class _ParcelWorkload(Workload):
    """The rules of one message, whose work is known once its ClientApp has run."""

    def __init__(self, scenario: Scenario, population: Population, parcel: Parcel) -> None:
        failures, size_bytes = scenario.devices.failures, parcel.size_bytes
        super().__init__(
            population, failures, size_bytes, 0.0, send_partial_work=False, seed=scenario.seed
        )
        # The number of steps is requested when the download has ended.
        self.shortens, self.plain = True, False
        self.parcel = parcel
        self._units = self._slept_ns = 0
        self._wait: Callable[[], Work] | None = None

    def start_early(self, dispatch: Dispatch, downloaded_ns: int) -> None:
        """Start the ClientApp when its message is dispatched, whose download will end at ``downloaded_ns``.

        Several nodes can then run their ClientApps at once.
        """
        if self._can_work(self.computation(dispatch, downloaded_ns)):
            self._wait = self.parcel.start(self.parcel)

    def _can_work(self, work: Computation) -> bool:
        """Whether the message's declared work ends before the node crashes, or leaves and drops it."""
        least, client = self.parcel.least_units, work.client
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
        parcel = self.parcel
        assert parcel.dispatch is not None
        self._units = parcel.least_units
        if self._wait is not None or self._can_work(work):
            done = (self._wait or parcel.start(parcel))()
            self._units, self.bytes_up, self._slept_ns = done
        parcel.dispatch.steps = self._units
        # A dispatch without steps would be declined; for a message without work, local_steps gives the step no time.
        return max(1, self._units)

    @override
    def local_steps(self, work: Computation, steps: int, online_until_ns: int) -> tuple[int, int]:
        work = work._replace(start_ns=work.start_ns + self._slept_ns)
        if not self._units:
            return work.start_ns, steps
        return super().local_steps(work, steps, online_until_ns)


class Exchange:
    """The nodes, and the messages on their way to and from them.

    Args:
        scenario: the device file.
        stop: when the run ends.
        population, evaluating: the nodes' devices, and the same with the time of a unit of evaluation.
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
        scenario: Scenario,
        stop: Stop,
        population: Population,
        evaluating: Population,
        recorder: Recorder,
    ) -> None:
        self.population, self._evaluating = population, evaluating
        self._scenario = scenario
        self.engine = engine = Engine()
        self.version = self.rounds = self.dispatched = self.arrived = self.refused = 0
        self.messages: list[Sent] = []
        self.on_version: Callable[[], None] = lambda: None
        self._stop = stop
        self._detection_ns = scenario.server.failure_detection_ns
        self._waits_for_offline = scenario.task.params.offline == "wait"
        self._queues: dict[int, deque[Parcel]] = {}
        # Busy nodes, and nodes with a message waiting.
        self._engaged: set[int] = set()
        # The next sequence numbers of messages other than training, and of training, of each client.
        self._sequences = [0] * population.clients, [0] * population.clients
        self._others = self._changes = 0
        self._over = False
        self._updates = Updates(recorder)
        self._dispatcher = Dispatcher(
            engine,
            population.availability,
            Stream(scenario.seed, Purpose.SELECTION),
            self._begin,
            lambda: None,
            is_patient=True,
        )
        self._workloads: dict[int, _ParcelWorkload] = {}
        links = links_of(engine, population.network)

        def process(dispatch: Dispatch, *times: Any) -> DispatchProcess:
            return DispatchProcess(self._workloads[dispatch.dispatch_id], dispatch, *times)

        self._dispatches = SteppedDispatches(engine, links, process, self._on_end)
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

    def send(self, parcel: Parcel) -> None:
        """Send a message; its node gets it when it is online and has handled earlier ones."""
        client = parcel.client
        self.messages.append(parcel.sent)
        if not self._waits_for_offline and not self._dispatcher.is_online(client):
            self.refused += 1
            parcel.sent.outcome = "refused"
            self._change(parcel, replied=False)
            return
        self._queues.setdefault(client, deque()).append(parcel)
        if client not in self._engaged:
            self._engaged.add(client)
            self._dispatcher.dispatch(client, steps=0)

    def _begin(self, client: int, now: int, online_until_ns: int, _: Request) -> None:
        queue = self._queues[client]
        while queue and queue[0].expires_ns <= now:
            queue[0].sent.outcome = "expired"
            self._change(queue.popleft(), replied=None)
        if not queue:
            self._next(client)
            return
        parcel = queue.popleft()
        trains = parcel.kind is Kind.TRAIN
        number, offset = (self.dispatched, 0) if trains else (self._others, _NOT_RECORDED)
        dispatch_id, sequence = offset + number, offset + self._sequences[trains][client]
        self._sequences[trains][client] += 1
        self.dispatched += trains
        self._others += not trains
        if trains:
            parcel.sent.dispatch_id = dispatch_id
        parcel.dispatch = dispatch = Dispatch(
            dispatch_id, client, sequence, parcel.version, self.rounds, 0, now, client
        )
        population = self._evaluating if parcel.kind is Kind.EVALUATE else self.population
        workload = _ParcelWorkload(self._scenario, population, parcel)
        self._workloads[dispatch_id] = workload
        if population.batteries is not None:
            population.batteries.begin(client, now)
        else:
            network, size_bytes = population.network, parcel.size_bytes
            latest_ns = (
                network.latest_end_ns(client, Direction.DOWN, size_bytes, now)
                if isinstance(network, SharedNetwork)
                else network.transfer_end_ns(client, Direction.DOWN, size_bytes, now, sequence)
            )
            if latest_ns <= online_until_ns and latest_ns < NEVER:
                workload.start_early(dispatch, latest_ns)
        self._dispatches.begin(dispatch, None, online_until_ns)
        if self.dispatched == self._stop.dispatches:
            self.engine.call_at(now, self.stop)

    def _on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        parcel = self._workloads.pop(dispatch.dispatch_id).parcel
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
            self._change(parcel, replied=None if expired else True)
            if trained and self.arrived == self._stop.arrivals:
                self.stop()
        else:
            parcel.sent.outcome = "dropped"
            if trained:
                self._updates.close(dispatch, plan, Outcome.DROPPED, self.now_ns)
            if self._detection_ns is None:
                self._change(parcel, replied=None)
            else:
                self.engine.call_at(
                    self.now_ns + self._detection_ns,
                    lambda: self._change(parcel, replied=False),
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
            work_ns = plan.download_ns, plan.compute_ns, plan.upload_ns
            ready_ns = batteries.end(client, now, self.population.power.joules(client, work_ns))
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

    def _change(self, parcel: Parcel, *, replied: bool | None) -> None:
        self._changes += 1
        parcel.replied, parcel.order = replied, self._changes
        if parcel.on_answer is not None and parcel.is_answered:
            parcel.on_answer(parcel)

    # -- replies at the server ----------------------------------------------------------------------------------------

    def give_up(self, parcels: Iterable[Parcel]) -> None:
        """Stop waiting for messages; replies that still arrive are late."""
        for parcel in parcels:
            parcel.late = True
            if parcel.replied:
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
            plan = self._note(self._workloads[dispatch.dispatch_id].parcel, dispatch, stopped)
            if dispatch.dispatch_id < _NOT_RECORDED:
                self._updates.close(dispatch, plan, Outcome.UNFINISHED, now)
        for dispatch in list(self._updates.held):
            self._discard(dispatch)


# -- the table of messages --------------------------------------------------------------------------------------------


def hash_of(content: bytes) -> str:
    """The CRC-32 of a serialized message, which takes less time than its serialization."""
    return f"{zlib.crc32(content):08x}"


def messages_table(
    sent: Sequence[Sent], columns_of: Callable[[Sequence[Ended]], Mapping[str, Array]]
) -> pa.Table:
    """The table of messages, in order of sending.

    Args:
        sent: the messages.
        columns_of: the columns of ``dispatches``, as :func:`fedsim.simulation.updates.dispatch_columns` makes them.
    """
    columns: dict[str, Any] = {
        "message_id": np.arange(len(sent)),
        "kind": [each.kind for each in sent],
        "client_id": [each.client for each in sent],
        "dispatch_id": null_if_negative(np.array([each.dispatch_id for each in sent], np.int64)),
        "outcome": [
            "failed" if each.failed and each.outcome == "replied" else each.outcome for each in sent
        ],
        **{name: [getattr(each, name) for each in sent] for name in ("sent_hash", "reply_hash")},
    }
    for name in ("sent", "replied"):
        instants_ns = np.array([getattr(each, f"{name}_ns") for each in sent], np.float64)
        columns[f"{name}_s"] = np.where(instants_ns < 0, np.nan, instants_ns / NS_PER_S)
    begun = np.array([each.ended is not None for each in sent], np.bool_)
    spent = (
        columns_of([each.ended for each in sent if each.ended is not None]) if begun.any() else {}
    )
    table = with_columns(MESSAGES, spent)
    for field in table.schema:
        if field.name not in columns:
            # A message that its node never began took nothing.
            is_instant = field.name in MESSAGE_INSTANTS
            values = np.full(len(sent), np.nan if is_instant else 0, field.type.to_pandas_dtype())
            if begun.any():
                values[begun] = spent[MESSAGE_INSTANTS.get(field.name, field.name)]
            columns[field.name] = values
    return from_columns(table, columns)
