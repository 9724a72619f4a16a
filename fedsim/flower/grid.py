"""The Grid through which a ServerApp reaches its nodes, in simulated time."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from typing_extensions import override

from fedsim.errors import UserError
from fedsim.flower import internals as fl
from fedsim.flower.client import Answer, Job
from fedsim.flower.clock import EPOCH_S, Done, SimulatedClock, never
from fedsim.flower.exchange import Exchange, Kind, Parcel, Sent, Work, hash_of
from fedsim.flower.workers import Workers
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Scenario
from fedsim.tasks.kinds.flower import FlowerParams
from fedsim.units import NEVER, NS_PER_S, to_ns

DECLARED = "fedsim.work"
"""The record of a message that declares its work: ``steps``, and the bytes of the message and its reply."""
UNITS_PER_HOST_S = 1000
"""Units of work per second of the host's CPU time."""
_PATIENCE = 1000
"""Consecutive calls of ``get_node_ids``, without a wait between them, after which time advances."""


def node_ids(count: int, seed: int) -> tuple[int, ...]:
    """64-bit ids of nodes, like those of a SuperLink; all are serialized in the same number of bytes."""
    stream = Stream(seed, Purpose.FLOWER)
    ids = tuple(dict.fromkeys((stream.hash(node) >> 2) | (1 << 62) for node in range(count)))
    assert len(ids) == count, "two nodes have the same id; choose another seed"
    return ids


class SimulatedGrid(fl.Grid):  # type: ignore[misc]  # Flower is not checked
    """Sends messages through the devices and links of an exchange.

    Args:
        exchange, workers: the parts of the run.
        scenario: how work is counted, which nodes are shown, and how long an aggregation takes.
        run_config: the app's configuration.
        on_answer: called with a parcel and the answer of its ClientApp.

    Attributes:
        clock: the time of the ServerApp's threads.
        ids: the nodes as Flower knows them.
        seed, run_config: the scenario's seed, and the app's configuration.
        samples: examples per client, as its replies report them.
        waited_for_nodes: whether the app waited for more nodes than will ever be online.
    """

    def __init__(
        self,
        exchange: Exchange,
        workers: Workers,
        scenario: Scenario,
        run_config: Mapping[str, Any],
        on_answer: Callable[[Parcel, Answer], None],
    ) -> None:
        self._exchange = exchange
        self.clock = SimulatedClock(exchange, self._pass_ns)
        self._workers = workers
        self._params: FlowerParams = scenario.task.params
        self.seed, self.run_config = scenario.seed, dict(run_config)
        self.ids = node_ids(self._params.clients, self.seed)
        run_id = (Stream(self.seed, Purpose.FLOWER).hash(0, 1) >> 2) | (1 << 62)
        self._run = fl.Run.create_empty(run_id=run_id)
        self._on_answer = on_answer
        self._aggregation_ns = to_ns(scenario.server.aggregation_time)
        self._client_of = {node_id: client for client, node_id in enumerate(self.ids)}
        self._parcels: dict[str, Parcel] = {}
        self._states: dict[int, bytes] = {}
        self._pushed = 0
        # Consecutive calls, without a wait or new message between them, of get_node_ids and of pull_messages without
        # a result.
        self._questions = self._empty_pulls = 0
        self._slept_in_vain = False
        self._shown: list[int] = []
        self._model: bytes | None = None
        self._marked = False
        # Replies of the round under way, and whether training messages were sent in it.
        self._joined: list[Parcel] = []
        self._trains = False
        # Whether nodes keep state; None until a ClientApp has run.
        self._stateful: bool | None = None
        self._any_step = False
        self.waited_for_nodes = False
        # Replies to training messages that the app has received but no version has used, by message id.
        self._unused: dict[str, Parcel] = {}
        self.samples: dict[int, int] = {}

    # -- Flower's interface -------------------------------------------------------------------------------------------

    @override
    def set_run(self, run: fl.Run) -> None:
        pass

    @property
    @override
    def run(self) -> fl.Run:
        return self._run

    @override
    def create_message(
        self,
        content: fl.RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> fl.Message:
        return fl.Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    @override
    def get_node_ids(self) -> Iterable[int]:
        if self.clock.is_foreign:
            # Flower's older server also looks for nodes from a thread on host time.
            return list(self._shown)
        self._questions += 1
        if self._questions > _PATIENCE:
            self._pass_time()
        ids = self.ids
        if self._params.nodes == "online":
            exchange = self._exchange
            online = exchange.population.availability.online_clients(exchange.now_ns)
            self._shown = [ids[client] for client in online]
        else:
            self._shown = list(ids)
        return list(self._shown)

    @override
    def get_nodes(self) -> Iterable[fl.NodeInfo]:
        return [fl.NodeInfo(node_id=node_id) for node_id in self.get_node_ids()]

    @override
    def push_messages(self, messages: Iterable[fl.Message]) -> Iterable[str]:
        parcels = self._push(messages, infer_version=True)
        return [parcel.metadata.message_id for parcel in parcels]

    @override
    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[fl.Message]:
        ids = list(dict.fromkeys(message_ids))
        replies = self._take(ids)
        if replies:
            self._questions = self._empty_pulls = 0
        else:
            self._empty_pulls += 1
            if self._empty_pulls > 1:
                # The app polls without a pause, so that only an event can change the answer.
                self._pass_time()
                replies = self._take(ids)
        self._unused |= {
            reply.metadata.reply_to_message_id: parcel
            for parcel, reply in replies
            if _trained(parcel, reply)
        }
        return [reply for _, reply in replies]

    @override
    def send_and_receive(
        self, messages: Iterable[fl.Message], *, timeout: float | None = None
    ) -> Iterable[fl.Message]:
        exchange = self._exchange
        deadline_ns = NEVER if timeout is None else exchange.now_ns + round(timeout * NS_PER_S)
        parcels = self._push(messages)
        stages = {parcel.stage for parcel in parcels}
        if fl.SecureStage.SETUP in stages:
            # Secure aggregation may have halted a round before its end.
            for parcel in self._joined:
                exchange.discard(parcel)
            self._joined = []
            self.close_round()
        left = {parcel.metadata.message_id: parcel for parcel in parcels}
        taken = self._take(left)
        while True:
            for _, reply in taken:
                left.pop(reply.metadata.reply_to_message_id, None)
            if not left or exchange.now_ns >= deadline_ns:
                break
            until_ns = min(deadline_ns, *(parcel.expires_ns for parcel in left.values()))
            open_ = {parcel for parcel in left.values() if not parcel.is_answered}
            for parcel in open_:
                parcel.on_answer = open_.discard
            self.clock.wait(lambda: not open_, until_ns)  # noqa: B023 - called before the loop goes on
            taken += self._take(left)
        exchange.give_up(left.values())
        for message_id in left:
            del self._parcels[message_id]
        if any(parcel.kind is Kind.TRAIN for parcel in parcels):
            trained = [parcel for parcel, reply in taken if _trained(parcel, reply)]
            self._joined += trained
            # Replies that took no step only prepare a round, or complete it.
            self._trains |= bool(trained) or not any(reply.has_content() for _, reply in taken)
        if not self.clock.is_pooled and stages <= {None, fl.SecureStage.UNMASK}:
            self.close_round()
        return [reply for _, reply in taken]

    def wait_for_any(self, message_ids: Iterable[str], until_ns: int) -> list[str]:
        """Let time pass until one of these messages has an answer, or the time is up, and then to the end of that
        instant; returns those that have one."""
        exchange = self._exchange
        parcels = [self._parcels[each] for each in message_ids]
        self.clock.wait(lambda: any(parcel.is_answered for parcel in parcels), until_ns)
        self.clock.wait(never, exchange.now_ns)
        return [parcel.metadata.message_id for parcel in parcels if parcel.is_answered]

    # -- sending ------------------------------------------------------------------------------------------------------

    def _push(self, messages: Iterable[fl.Message], *, infer_version: bool = False) -> list[Parcel]:
        """Serialize and send messages; a message to an unknown node is refused, as by a SuperLink."""
        self.clock.check_in()
        exchange = self._exchange
        self._questions = self._empty_pulls = 0
        self._slept_in_vain = False
        parcels = []
        # Messages of one call often share their content, which is then serialized once.
        contents: dict[int, tuple[fl.RecordDict, bytes, str]] = {}
        for message in messages:
            metadata = message.metadata
            client = self._client_of.get(metadata.dst_node_id)
            if client is None:
                fl.FLOWER_LOGGER.error("There is no node %d.", metadata.dst_node_id)
                continue
            key = id(message.content)
            if key not in contents:
                proto = fl.MessageProto(content=fl.recorddict_to_proto(message.content))
                serialized = proto.SerializeToString()
                contents[key] = message.content, serialized, hash_of(serialized)
                if infer_version and self._units(message)[0] is Kind.TRAIN:
                    self._note_model(message.content)
            _, content, content_hash = contents[key]
            self._pushed += 1
            message_id = str(uuid.UUID(int=self._pushed))
            metadata.__dict__["_message_id"] = message_id
            head = fl.MessageProto(metadata=fl.metadata_to_proto(metadata)).SerializeToString()
            kind, units = self._units(message)
            declared = message.content.config_records.get(DECLARED)
            if declared is not None:
                kind, units = Kind.TRAIN, int(declared["steps"])
            stage = fl.secure_stage(message)
            shown = metadata.message_type if stage is None else f"{metadata.message_type}.{stage}"
            parcel = Parcel(
                metadata,
                head + content,
                client,
                kind,
                stage,
                round((metadata.created_at - EPOCH_S + metadata.ttl) * NS_PER_S),
                units,
                len(head) + len(content) if declared is None else float(declared["bytes-down"]),
                exchange.version,
                self._start,
                self._commit,
                Sent(shown, client, exchange.now_ns, content_hash),
            )
            if declared is not None:
                parcel.reply_bytes = float(declared["bytes-up"])
            elif self._params.work is not None and kind is Kind.TRAIN:
                parcel.reply_bytes = self._params.work.reply
            self._parcels[message_id] = parcel
            parcels.append(parcel)
        for parcel in parcels:
            exchange.send(parcel)
        return parcels

    def _units(self, message: fl.Message) -> tuple[Kind, int]:
        """The kind of a message, and its declared units of work; 0 if they are counted."""
        work = self._params.work
        category, _, name = message.metadata.message_type.partition(".")
        if category == "evaluate":
            return Kind.EVALUATE, 0 if work is None else work.evaluate
        if category != "train":
            return Kind.QUERY, 0
        units = 0 if work is None else work.train
        if isinstance(units, int):
            return (Kind.TRAIN, units) if fl.trains(message) else (Kind.QUERY, 0)
        name = fl.secure_stage(message) or name or "default"
        if name not in units:
            raise UserError(
                f"declares no units for the kind '{name}', which the ServerApp sends",
                where="devices.compute.work.train",
                hint=f"add {name}: 0 if it does not train, or its units of work",
            )
        return Kind.TRAIN if units[name] else Kind.QUERY, units[name]

    def _job(self, parcel: Parcel) -> Job:
        dispatch = parcel.dispatch
        assert dispatch is not None
        number = uuid.UUID(parcel.metadata.message_id).int
        return Job(
            parcel.payload,
            self.ids[parcel.client],
            {"partition-id": parcel.client, "num-partitions": len(self.ids)},
            self._states.get(parcel.client, b""),
            self.run_config,
            str(uuid.UUID(int=number | 1 << 127)),
            EPOCH_S + dispatch.dispatched_ns / NS_PER_S,
            Stream(self.seed, Purpose.FLOWER, 1).hash(parcel.client, dispatch.sequence) >> 32,
            self._params.threads,
        )

    def _start(self, parcel: Parcel) -> Callable[[], Work]:
        """Start the ClientApp of a message at its node; with declared work, only when its reply is needed."""
        if (
            self._params.work is not None
            and parcel.reply_bytes is not None
            and self._stateful is False
        ):
            work = Work(parcel.least_units, parcel.reply_bytes)
            return lambda: work
        answer = self._workers.submit(self._job(parcel))

        def wait() -> Work:
            self._answered(parcel, answer())
            assert parcel.answer is not None
            if parcel.reply_bytes is not None:
                return Work(parcel.least_units, parcel.reply_bytes)
            units = self._units_of(parcel, parcel.answer)
            return Work(units, len(parcel.answer.reply), parcel.answer.slept_ns)

        return wait

    def _units_of(self, parcel: Parcel, answer: Answer) -> int:
        """The work of an answer, in units of ``devices.compute``."""
        params, counts, trained = self._params, answer.counts, parcel.kind is Kind.TRAIN
        if params.work is not None and parcel.kind is not Kind.QUERY:
            return parcel.least_units
        if params.unit == "host_seconds":
            return math.ceil(counts.host_s * UNITS_PER_HOST_S)
        if parcel.kind is Kind.QUERY:
            return 0
        if params.unit == "step":
            count = counts.steps if trained else counts.batches
        else:
            count = (counts.trained if trained else counts.examples) or answer.num_examples
        self._any_step |= trained and bool(count)
        if trained and not self._any_step and answer.num_examples:
            raise UserError(
                "the ClientApp took no step of a PyTorch optimizer, so its training would take no time",
                where="devices.compute.unit",
                hint="give seconds per example with -s devices.compute.unit=example, measure with "
                "-s devices.compute.unit=host_seconds, or declare devices.compute.work",
            )
        return count

    def _answered(self, parcel: Parcel, answer: Answer) -> None:
        parcel.answer = answer
        if self._stateful is None or answer.state:
            self._stateful = bool(answer.state)
        parcel.sent.reply_hash = hash_of(answer.reply)
        parcel.sent.failed = answer.problem is not None
        self._on_answer(parcel, answer)

    def _commit(self, parcel: Parcel) -> None:
        """Keep the node's state after work that it has completed."""
        if parcel.answer is None:
            return
        if parcel.answer.state:
            self._states[parcel.client] = parcel.answer.state
        else:
            self._states.pop(parcel.client, None)
        if parcel.answer.num_examples and parcel.kind is Kind.TRAIN:
            self.samples[parcel.client] = parcel.answer.num_examples

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        """Let time pass until something happens, but at most one second for an app that watches the clock."""
        exchange = self._exchange
        before = exchange.now_ns
        until_ns = before + NS_PER_S if self.clock.was_read() else self._next_arrival_ns()
        self.clock.wait(lambda: exchange.now_ns > before, until_ns)
        self.clock.wait(never, exchange.now_ns)

    def _next_arrival_ns(self) -> int:
        """The time at which the app sees another node; NEVER if it never does."""
        exchange = self._exchange
        if self._params.nodes == "registered":
            return NEVER
        return exchange.population.availability.next_arrival(exchange.now_ns)

    def _pass_ns(self, duration_ns: int, done: Done) -> None:
        """Let the ServerApp sleep, or wait until a condition holds.

        An app that waits for nodes looks for them, sleeps and looks again. While no message is under way, such a sleep
        is extended to a multiple of its length, until another node comes online; the result is the same. The sleeps of
        an app that also watches the clock, or has threads, are not extended, because it may stop waiting earlier. If no
        other node will ever come online, the wait lasts until the end of the run.
        """
        exchange = self._exchange
        in_vain = 0 < self._questions <= 2 and not exchange.under_way and duration_ns > 0
        in_vain = in_vain and not (self.clock.was_read() or self.clock.threads)
        sleeps = 1
        if in_vain and self._slept_in_vain:
            next_ns = self._next_arrival_ns()
            if next_ns == NEVER:
                self.waited_for_nodes = True
                self.clock.wait(never, NEVER)
            sleeps = max(1, -(-(next_ns - exchange.now_ns) // duration_ns))
        self._slept_in_vain = in_vain
        self._questions = self._empty_pulls = 0
        self.clock.wait(done, exchange.now_ns + sleeps * duration_ns)

    def _take(self, message_ids: Iterable[str]) -> list[tuple[Parcel | None, fl.Message]]:
        """The replies, and errors, that the server has for these messages, in order of arrival."""
        now, answered, unknown = self._exchange.now_ns, [], []
        for message_id in message_ids:
            parcel = self._parcels.get(message_id)
            if parcel is None:
                unknown.append(message_id)
            elif parcel.is_answered or now >= parcel.expires_ns:
                answered.append(parcel)
        answered.sort(key=lambda parcel: parcel.order)
        # With declared work, a ClientApp runs only now.
        waits = {
            parcel.order: self._workers.submit(self._job(parcel))
            for parcel in answered
            if parcel.replied and parcel.answer is None
        }
        for parcel in answered:
            if parcel.order in waits:
                self._answered(parcel, waits[parcel.order]())
                self._commit(parcel)
        replies = [(parcel, self._reply(parcel)) for parcel in answered]
        run_id = self.run.run_id
        return replies + [
            (None, fl.message_unavailable(message_id, run_id)) for message_id in unknown
        ]

    def _reply(self, parcel: Parcel) -> fl.Message:
        """The answer to a message that the ServerApp gets: the reply, or Flower's error."""
        metadata = parcel.metadata
        del self._parcels[metadata.message_id]
        if parcel.replied and parcel.answer is not None:
            reply = fl.message_from_proto(fl.MessageProto.FromString(parcel.answer.reply))
            parcel.answer, parcel.payload = None, b""
            if reply.has_error() or not _trained(parcel, reply):
                self._exchange.discard(parcel)
            return reply
        if parcel.replied is False:
            return fl.node_unavailable(metadata)
        self._exchange.give_up([parcel])
        return fl.message_unavailable(metadata.message_id, metadata.run_id)

    # -- versions -----------------------------------------------------------------------------------------------------

    def close_round(self) -> None:
        """Close a round if training messages were sent in it: the replies make a new version."""
        exchange, replies = self._exchange, self._joined
        if not self._trains:
            return
        self._joined, self._trains, self._model = [], False, None
        exchange.make_version(replies)
        exchange.close_round()
        if self._aggregation_ns and replies:
            self.clock.wait(never, exchange.now_ns + self._aggregation_ns)

    def _note_model(self, content: fl.RecordDict) -> None:
        """Infer a version: a loop that sends a different model has made it from the replies that it took."""
        if self._marked:
            return
        digest = hashlib.blake2b(digest_size=16)
        for record in content.array_records.values():
            for array in record.values():
                digest.update(array.data)
        if digest.digest() != self._model:
            self._make_version(list(self._unused))
        self._model = digest.digest()

    def mark_version(self, replies: Iterable[fl.Message] | None) -> None:
        """Record a model version made from replies; None for all that were taken since the last version."""
        self._marked = True
        ids = [reply.metadata.reply_to_message_id for reply in replies or ()]
        self._make_version(list(self._unused) if replies is None else ids)

    def _make_version(self, message_ids: Iterable[str]) -> None:
        parcels = [self._unused.pop(one) for one in message_ids if one in self._unused]
        self._exchange.make_version(parcels)


def _trained(parcel: Parcel | None, reply: fl.Message) -> TypeGuard[Parcel]:
    """Whether a reply brings a trained model."""
    if parcel is None or parcel.kind is not Kind.TRAIN or reply.has_error():
        return False
    return parcel.dispatch is not None and parcel.dispatch.steps_done > 0
