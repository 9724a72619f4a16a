"""A server of fedsim whose clients are the nodes of a Flower app: dispatches are messages, and time passes by itself.

The server, its schedule and its selection are those of a simulation. Everything that happens outside of them (a node
comes or goes, a reply or an error arrives) is a line of the journal before the server handles it. The journal
determines the run, so a server that was killed repeats it up to its last line and continues from there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, TypeAdapter
from typing_extensions import override

from fedsim.composition.planes import build_station
from fedsim.composition.world import World
from fedsim.devices.battery import Power
from fedsim.errors import UserError, printable
from fedsim.flower import internals as fl
from fedsim.flower.clock import RunEnded
from fedsim.flower.exchange import Sent, hash_of, messages_table
from fedsim.flower.grid import DECLARED, SimulatedGrid
from fedsim.flower.update import (
    Refused,
    introduced,
    introduction,
    is_unavailable,
    received,
    request,
)
from fedsim.learning.learner import Learner
from fedsim.learning.workers import Group, Workers
from fedsim.methods.base import LocalUpdate
from fedsim.randomness import Stream
from fedsim.runs.checkpoint import load_tensors, save_tensors
from fedsim.runs.folder import RunFolder
from fedsim.runs.schema import MESSAGES
from fedsim.runs.tables import write_parquet
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.dispatches import Dispatches, OnEnd
from fedsim.simulation.engine import LAST_ORDER, LEAVING_ORDER, Engine
from fedsim.simulation.story import Server
from fedsim.simulation.updates import Ended
from fedsim.simulation.workload import Workloads
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NEVER, NS_PER_S, NS_PER_US
from fedsim.vocabulary.arrays import Bools, Ints
from fedsim.vocabulary.outcomes import Ending, Outcome

LOGGER = logging.getLogger("fedsim")
_POLL_S, _POLL_SHARE, _LOOK_S = 0.02, 0.02, 0.5
"""Seconds between two looks for replies: at least, and per second without one; and between two looks for nodes."""
_PULL_S = 0.1
"""Seconds for which a pull may hold up the server."""
_NOTES = 20
_FIRST_INTRODUCTIONS = 4
"""Nodes that get an introduction at once; later, as many as have replied."""
_SIMULATED_TTL_S = 100 * 365 * 86_400.0


class Nodes:
    """Which clients are online, as the server knows it: their nodes are connected.

    It answers the queries of a server to an :class:`~fedsim.traces.availability.AvailabilityIndex`; everything else
    about the past is answered by the index of the intervals that were observed.

    Attributes:
        clients: number of clients N.
        of_client: the node of each client; of those that are gone, the last one.
    """

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.of_client: dict[int, int] = {}
        self._left: list[int] = []  # Clients whose nodes are gone, in this order.
        self._online = np.zeros(clients, np.bool_)
        self._changes: list[list[int]] = [[] for _ in range(clients)]

    def numbers_of(self, nodes: Sequence[int]) -> dict[int, int]:
        """The clients that new nodes become: as before, or a new number, or that of the node which is gone longest."""
        before = {node: client for client, node in self.of_client.items()}
        numbers = {node: before[node] for node in nodes if node in before}
        new = range(len(self.of_client), self.clients)
        free = [*new, *(client for client in self._left if client not in numbers.values())]
        return numbers | dict(
            zip((node for node in nodes if node not in numbers), free, strict=False)
        )

    def came(self, client: int, node: int, now_ns: int) -> None:
        """A node has connected."""
        self.of_client[client] = node
        self._online[client] = True
        self._changes[client].append(now_ns // NS_PER_US)
        if client in self._left:
            self._left.remove(client)

    def gone(self, client: int, now_ns: int) -> None:
        """Its node has disconnected."""
        self._online[client] = False
        self._changes[client].append(now_ns // NS_PER_US)
        self._left.append(client)

    def is_online(self, client: int, t_ns: int) -> bool:
        """Whether its node is connected."""
        return bool(self._online[client])

    # Nobody knows when a node will leave or come; the server is called when one does.

    def online_until(self, client: int, t_ns: int) -> int:
        """NEVER while its node is connected."""
        return NEVER if self._online[client] else t_ns

    def next_online(self, client: int, t_ns: int) -> int:
        """NEVER while its node is gone."""
        return t_ns if self._online[client] else NEVER

    def next_arrival(self, t_ns: int) -> int:
        """NEVER."""
        return NEVER

    def online_clients(self, t_ns: int) -> Ints:
        """Clients whose nodes are connected, ascending."""
        return np.flatnonzero(self._online)

    def sampler(self, stream: Stream, prepare: Any = None) -> SimpleNamespace:
        """Uniform draws from the clients that are online and not busy."""

        def sample(k: int, t_ns: int, busy: Bools, draw: int) -> list[int]:
            clients = self.online_clients(t_ns)
            clients = clients[~busy[clients]]
            chosen: list[int] = clients[np.argsort(stream.hashes(draw, clients))][:k].tolist()
            return chosen

        return SimpleNamespace(sample=sample, online_until_ns={})

    def __getattr__(self, name: str) -> Any:
        # An interval without an end lasts longer than the run.
        edges = [each + [NEVER // NS_PER_US] * (len(each) % 2) for each in self._changes]
        last = np.cumsum([len(each) for each in edges])
        first = last - [len(each) for each in edges]
        zeros = np.zeros(self.clients, np.int64)
        flat = np.array([edge for each in edges for edge in each], np.int64)
        return getattr(AvailabilityIndex(flat, first, last, zeros, zeros), name)


_Natural = Annotated[int, Field(strict=True, ge=0, lt=2**63)]


class Line(NamedTuple):
    """A line of the journal.

    Attributes:
        at_ns: when it happened, in nanoseconds of the run.
        what: ``came``, ``gone``, ``reply``, ``lost``, or ``mark``, up to which the server had acted.
        number: the client that came or is gone; the dispatch of a reply, or of one that will have none.
        more: the node that came; the course of a reply; why there is none.
    """

    at_ns: _Natural
    what: Annotated[str, Field(pattern="^(came|gone|reply|lost|mark)$")]
    number: _Natural
    more: Mapping[str, Any]


_LINE = TypeAdapter(Line)
_MORE = {"came": {"node"}, "lost": {"why"}, "reply": {"samples", "bytes_up", "work_ns", "steps"}}


class _Journal:
    """The lines in the run folder, each on the disk before it counts."""

    def __init__(self, path: Path) -> None:
        self.lines: list[Line] = []
        size = 0
        if path.exists():
            for text in path.read_bytes().splitlines(keepends=True):
                if not text.endswith(b"\n"):
                    break  # The server was killed while it wrote this line.
                content = text.partition(b" ")[2][:-1]
                try:
                    if text != _checked(content):
                        raise ValueError
                    line = _LINE.validate_json(content)
                    if not line.more.keys() >= _MORE.get(line.what, set()):
                        raise ValueError
                    self.lines.append(line)
                except ValueError:
                    raise UserError(
                        "it has changed since fedsim wrote it",
                        where=f"{path}:{len(self.lines) + 1}",
                        hint="restore the folder from a copy, or begin in another one: server_app(..., output=...)",
                    ) from None
                size += len(text)
            os.truncate(path, size)
        self._file = path.open("ab")

    def append(self, line: Line) -> None:
        """Write a line."""
        self._file.write(_checked(json.dumps(line).encode()))
        self._file.flush()
        os.fsync(self._file.fileno())


def _checked(content: bytes) -> bytes:
    """A line with this content, after its checksum."""
    return b"%08x %s\n" % (zlib.crc32(content), content)


class _WallClock:
    """Replies, and time by the host's monotonic clock, in whole microseconds; downtime of the server does not count.

    Flower's pull of replies does not return while the node of one still uploads it. A node that dies in its upload
    holds it for three minutes, and must hold up no other reply and no deadline, so that each pull has a thread.
    """

    def __init__(self, grid: fl.Grid) -> None:
        self._grid = grid
        self._awaited: Sequence[str] = ()
        self._under_way: list[tuple[set[str], Future[list[fl.Message]]]] = []

    def begin(self, now_ns: int) -> None:
        """Begin, or continue, at this time of the run."""
        self._origin_ns = time.monotonic_ns() - now_ns

    def now_ns(self) -> int:
        """Nanoseconds since the run began."""
        return (time.monotonic_ns() - self._origin_ns) // NS_PER_US * NS_PER_US

    def replies(self, message_ids: Sequence[str], until_ns: int) -> list[fl.Message]:
        """Wait until there may be replies to these messages, but not beyond ``until_ns``; those that are here."""
        now_ns = self.now_ns()
        if message_ids != self._awaited:
            self._awaited, self._since_ns = message_ids, now_ns
        poll_s = min(max(_POLL_S, _POLL_SHARE * (now_ns - self._since_ns) / NS_PER_S), _LOOK_S)
        time.sleep(max(0.0, min((until_ns - now_ns) / NS_PER_S, poll_s)))
        pulled: Future[list[fl.Message]] = Future()
        if message_ids:
            self._under_way.append((set(message_ids), pulled))
            threading.Thread(target=self._pull, args=(pulled, message_ids), daemon=True).start()
            wait([pulled], _PULL_S)
        done = [pull for _, pull in self._under_way if pull.done()]
        self._under_way = [each for each in self._under_way if each[1] not in done]
        replies = [reply for pull in done for reply in pull.result()]
        # A SuperLink gives a reply to one pull, and an error to the later ones.
        elsewhere = {_answered(reply) for reply in replies if not is_unavailable(reply)}.union(
            *(ids for ids, _ in self._under_way)
        )
        return [
            reply
            for reply in replies
            if not (is_unavailable(reply) and _answered(reply) in elsewhere)
        ]

    def _pull(self, pulled: Future[list[fl.Message]], message_ids: Sequence[str]) -> None:
        try:
            pulled.set_result(list(self._grid.pull_messages(message_ids)))
        except BaseException as error:
            pulled.set_exception(error)


def _answered(reply: fl.Message) -> str:
    """The message that a reply answers."""
    return str(reply.metadata.reply_to_message_id)


class _SimulatedClock(_WallClock):
    """Replies, and the time, of ``fedsim flower``, exactly."""

    _grid: SimulatedGrid

    @override
    def begin(self, now_ns: int) -> None:
        pass

    @override
    def now_ns(self) -> int:
        return self._grid.clock.now_ns

    @override
    def replies(self, message_ids: Sequence[str], until_ns: int) -> list[fl.Message]:
        return list(self._grid.pull_messages(self._grid.wait_for_any(message_ids, until_ns)))


class _LiveEngine(Engine):
    """Calls that are made when they are due, and in between what happens at the nodes."""

    def __init__(self, clients: LiveClients) -> None:
        super().__init__()
        self._clients = clients

    @override
    def run(self, until_ns: int | None) -> None:
        if until_ns is not None:
            self.call_at(until_ns, self.stop, LAST_ORDER)
        clients, clock = self._clients, self._clients.clock
        clients.repeat()
        while not self.stopped and clients.repeating:
            self.env.step()
        clock.begin(self.now_ns)
        clients.connect()
        with contextlib.suppress(RunEnded):
            while not self.stopped:
                clients.look(int(min(self.env.peek(), NEVER)))
                while not self.stopped and self.env.peek() <= clock.now_ns():
                    self.env.step()


@dataclass(eq=False)
class _Exchanged:
    """A dispatch whose message has no answer yet, its record, and the bytes of the message."""

    dispatch: Dispatch
    sent: Sent
    bytes_down: float

    def lost(self, end_ns: int, ending: Ending) -> Plan:
        """Its course if only its end is known: as if its client had worked until then."""
        start_ns = self.dispatch.dispatched_ns
        spent_ns = 0, end_ns - start_ns, 0
        return Plan(end_ns, ending, start_ns, -1, 0, self.bytes_down, 0.0, *spent_ns)

    def note(self, plan: Plan) -> None:
        """Record its course."""
        self.sent.ended = Ended(self.dispatch, plan, Outcome.UNFINISHED, -1, 0, plan.end_ns)


class _LiveLearner(Learner):
    """A learning plane whose updates come from the nodes; each instruction is executed when it is submitted."""

    def __init__(self, clients: LiveClients, *args: Any, **options: Any) -> None:
        self._clients = clients
        super().__init__(*args, workers=_Trained(clients), **options)

    @override
    def state(self) -> Any:
        state = super().state()
        self._clients.mark()
        return state


class _Trained(Workers):
    """Workers that have trained already."""

    def __init__(self, clients: LiveClients) -> None:
        self.count, self._clients = 1, clients
        self.described = {"workers": 0, "workers_are": "nodes"}

    @override
    def stop(self) -> None:
        pass

    @override
    def train(self, groups: Sequence[Group]) -> Iterator[LocalUpdate]:
        return map(self._clients.update, groups)


class LiveClients(Dispatches):
    """The nodes of a Flower app as the clients of a run: a :class:`fedsim.composition.run.Deployment`.

    Args:
        grid: the grid of the ServerApp.
        ttl_s: seconds after which a message without a reply is lost.
        introduce: ask each node for its ``partition-id``, which is then the number of its client, before it gets work;
            otherwise clients are numbered in the order in which their nodes come.

    Attributes:
        engine, info, server: see :class:`~fedsim.composition.run.Deployment`.
        clock: the time that passes.
        repeating: how many lines of an earlier server are still to be repeated.
    """

    server: Server
    can_stop = False

    def __init__(self, grid: fl.Grid, ttl_s: float, *, introduce: bool = False) -> None:
        self._grid = grid
        self._simulated = isinstance(grid, SimulatedGrid)
        self.clock = _SimulatedClock(grid) if self._simulated else _WallClock(grid)
        self.engine: Engine = _LiveEngine(self)
        self._ttl_s = _SIMULATED_TTL_S if self._simulated else ttl_s
        self.info: Mapping[str, Any] = {} if self._simulated else {"clock": "wall"}
        self.repeating = 0
        self._connected = False
        self._messages: list[Sent] = []
        self._under_way: dict[int, _Exchanged] = {}
        self._ids: dict[str, int] = {}
        self._looked_ns = -NEVER
        self._introduce = introduce
        self._introducing: dict[str, int] = {}
        self._refused: set[int] = set()
        self._kept: dict[int, Dispatch] = {}
        self._previous: dict[int, Dispatch] = {}
        self._closed: list[list[int]] = [[], []]

    # -- the parts of the run -----------------------------------------------------------------------------------------

    def open(self, folder: RunFolder) -> None:
        """Open the journal."""
        self._folder = folder
        self._replies = folder.checkpoint / "replies"
        self._replies.mkdir(parents=True, exist_ok=True)
        self._journal = _Journal(folder.checkpoint / "journal.jsonl")
        self._connected = not self._journal.lines

    def joined(self, world: World) -> World:
        """The run's world, with nodes in place of simulated devices."""
        population = world.population
        if not self._simulated:
            self.nodes = Nodes(population.clients)
            none = Power(np.zeros((1, 3)), np.zeros(population.clients, np.uint8))
            unseen: Any = {"batteries": None, "footprint": None, "power": none}
            nodes: Any = self.nodes
            population = replace(population, availability=nodes, **unseen)
            world = replace(world, population=population)
        self._world = world
        return world

    def learner(self, world: World, **options: Any) -> Learner:
        """The learning plane."""
        # Each reply is a group of its own.
        training = world.training.model_copy(update={"threads": 1, "verify": "eager"})
        station = build_station(replace(world, training=training))
        metrics = list(world.metrics)
        self._learner = _LiveLearner(
            self, station, world.scenario.evaluation, metrics=metrics, **options
        )
        return self._learner

    def dispatches(self, workloads: Workloads, on_end: OnEnd) -> Dispatches:
        """Itself."""
        self._workload_of, self._on_end = workloads.of, on_end
        return self

    def finish(self, columns: Callable[[Sequence[Ended]], Mapping[str, Any]]) -> None:
        """Write the table of messages."""
        table = messages_table(self._messages, columns)
        write_parquet(self._folder.parquet(MESSAGES.name), MESSAGES, table)
        if not self._simulated:
            note = "Energy, batteries and links are the devices' own, which a server does not see."
            self._note(note, log=False)

    # -- the journal --------------------------------------------------------------------------------------------------

    def repeat(self) -> None:
        """Schedule what has happened before the server was killed."""
        self.repeating = len(self._journal.lines)
        for line in self._journal.lines:
            self._schedule(line)

    def mark(self) -> None:
        """Note how far the server has acted, and delete replies that two checkpoints contain."""
        self._journal.append(Line(self.engine.now_ns, "mark", 0, {}))
        closed = [number for number, dispatch in self._kept.items() if not dispatch.open]
        for number in closed:
            del self._kept[number]
        self._closed.append(closed)
        for number in self._closed.pop(0):
            self._reply_path(number).unlink(missing_ok=True)

    def _next_ns(self) -> int:
        """Now, but after what the server has done at this very instant, also when the journal is repeated."""
        later_ns = 0 if self._simulated else NS_PER_US
        return max(self.clock.now_ns(), self.engine.now_ns + later_ns)

    def _happened(
        self, what: str, number: int, more: Mapping[str, Any], at_ns: int | None = None
    ) -> None:
        """Write a line, and let the server handle it next."""
        line = Line(self._next_ns() if at_ns is None else at_ns, what, number, more)
        self._journal.append(line)
        self._schedule(line)

    def _schedule(self, line: Line) -> None:
        order = {"mark": LAST_ORDER - 1, "came": LEAVING_ORDER, "gone": LEAVING_ORDER}
        self.engine.call_at(
            line.at_ns, lambda: self._handle(line), order.get(line.what, line.number)
        )

    def _handle(self, line: Line) -> None:
        if self.repeating:
            self.repeating -= 1
        if line.what == "came":
            if self.nodes.is_online(line.number, line.at_ns):
                earlier = self.nodes.of_client[line.number]
                self._refuse(earlier, f"a later node has its partition-id {line.number}")
                self._leave(line)
            self.nodes.came(line.number, line.more["node"], line.at_ns)
            self.server.look_again(line.number)
        elif line.what == "gone":
            self._leave(line)
        elif line.what == "lost":
            self._lose(line.number, line.at_ns, line.more["why"])
        elif line.what == "reply":
            self._arrive(line)

    def _leave(self, line: Line) -> None:
        """The node of a client is gone, and its work is lost."""
        self.nodes.gone(line.number, line.at_ns)
        for dispatch in self.all():
            if dispatch.client_id == line.number:
                self._lose(dispatch.dispatch_id, line.at_ns, "offline")

    def _lose(self, dispatch_id: int, now_ns: int, why: str) -> None:
        if (exchanged := self._under_way.get(dispatch_id)) is not None:
            is_gone = why == "offline"
            plan = exchanged.lost(now_ns, Ending.OFFLINE if is_gone else Ending.CRASH)
            self._end(exchanged, plan, "dropped" if is_gone else "failed")

    def _arrive(self, line: Line) -> None:
        exchanged = self._under_way.get(line.number)
        if exchanged is None:
            return
        dispatch, more = exchanged.dispatch, line.more
        if more["samples"]:
            # Its weight in the mean is that of its data.
            self._world.task.samples[dispatch.client_id] = more["samples"]
        start_ns, down, up = dispatch.dispatched_ns, exchanged.bytes_down, more["bytes_up"]
        moving_ns = max(0, line.at_ns - start_ns - more["work_ns"])
        down_ns = int(moving_ns * down / max(1.0, down + up))
        work_ns = line.at_ns - start_ns - moving_ns
        downloaded_ns = start_ns + down_ns
        plan = Plan(
            line.at_ns,
            Ending.ARRIVED,
            downloaded_ns,
            downloaded_ns + work_ns,
            min(more["steps"], dispatch.steps),
            down,
            up,
            down_ns,
            work_ns,
            moving_ns - down_ns,
        )
        exchanged.sent.replied_ns, exchanged.sent.reply_hash = line.at_ns, more["hash"]
        self._kept[dispatch.dispatch_id] = dispatch
        self._end(exchanged, plan, "late" if dispatch.round_is_closed else "replied")

    def _end(self, exchanged: _Exchanged, plan: Plan, outcome: str) -> None:
        """End a dispatch with the course that it took."""
        del self._under_way[exchanged.dispatch.dispatch_id]
        exchanged.note(plan)
        exchanged.sent.outcome = outcome
        self._on_end(exchanged.dispatch, plan)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        exchanged = self._under_way.pop(dispatch.dispatch_id)
        plan = exchanged.lost(self.engine.now_ns, Ending.STOPPED)
        exchanged.note(plan)
        return plan

    # -- messages -----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Reach the nodes; what an earlier server had sent will have no answer."""
        self._connected, at_ns = True, self._next_ns()
        for dispatch in self.all():
            if dispatch.dispatch_id not in self._ids.values():
                self._happened("lost", dispatch.dispatch_id, {"why": "offline"}, at_ns)

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        """Send a dispatch, whose round closes at ``deadline_ns`` if that is known, to its node."""
        workload = self._workload_of(dispatch)
        client, number = dispatch.client_id, dispatch.dispatch_id
        sent = Sent("train", client, dispatch.dispatched_ns, "", dispatch_id=number)
        self._messages.append(sent)
        previous, self._previous[client] = self._previous.get(client), dispatch
        exchanged = _Exchanged(dispatch, sent, float(workload.bytes_down))
        self._under_way[number] = exchanged
        if not self._connected:
            return
        grid, learner = self._grid, self._learner
        message = request(
            self._world,
            dispatch,
            learner.sent(dispatch.version),
            lambda name: learner.store.row(name, client),
            node=grid.ids[client] if self._simulated else self.nodes.of_client[client],
            ttl_s=self._ttl_s,
            kept=None if previous is None or not (previous.used or previous.open) else previous,
            deadline_ns=deadline_ns,
        )
        if self._simulated:
            steps, up = dispatch.steps, float(workload.bytes_up)
            sizes = {"steps": steps, "bytes-down": exchanged.bytes_down, "bytes-up": up}
            message.content[DECLARED] = fl.ConfigRecord(sizes)
        content = fl.recorddict_to_proto(message.content).SerializeToString()
        if not self._simulated:
            exchanged.bytes_down = float(len(content))
        sent.sent_hash = hash_of(content)
        for message_id in grid.push_messages([message]):
            self._ids[message_id] = number

    def look(self, until_ns: int) -> None:
        """Wait until something happens, but not beyond ``until_ns``, and note it."""
        if self._look_for_nodes():
            return
        for reply in self.clock.replies([*self._ids, *self._introducing], until_ns):
            message_id = _answered(reply)
            if message_id in self._introducing:
                self._introduced(self._introducing.pop(message_id), reply)
                continue
            dispatch_id = self._ids.pop(message_id, None)
            if dispatch_id is None and is_unavailable(reply):
                continue  # Of a pull that another one has overtaken.
            if dispatch_id is None:
                self._note("A node sent a reply that the server did not wait for; it is ignored.")
            elif dispatch_id in self._under_way:
                self._note_reply(self._under_way[dispatch_id].dispatch, reply)

    def _note_reply(self, dispatch: Dispatch, reply: fl.Message) -> None:
        number, sent = dispatch.dispatch_id, self._learner.sent(dispatch.version)
        try:
            course, vectors, loss = received(self._world, dispatch, sent, reply)
        except Refused as refused:
            self._note(f"Dispatch {number} of client {dispatch.client_id}: {refused}.")
            self._happened("lost", number, {"why": refused.why})
            return
        if self._simulated:
            course["bytes_up"] = float(self._workload_of(dispatch).bytes_up)
        save_tensors(self._reply_path(number), {**vectors, "/loss": torch.tensor([loss])})
        self._happened("reply", number, course)

    def _reply_path(self, dispatch_id: int) -> Path:
        return self._replies / f"{dispatch_id}.safetensors"

    def update(self, group: Group) -> LocalUpdate:
        """The update that has come for a group of one dispatch; clients keep their memories themselves."""
        (train,) = group.trains
        assert self._learner is not None
        tensors = load_tensors(self._reply_path(train.dispatch_id))
        loss = tensors.pop("/loss")
        device, memories = loss.device, self._world.method.memories()
        kept = self._learner.store.rows(np.array([train.client])).items()
        rows = {name: row for name, row in kept if memories[name].keeper == "client"}
        return LocalUpdate(
            {name: vector.to(device)[None] for name, vector in tensors.items()}, loss, rows
        )

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _look_for_nodes(self) -> bool:
        """Note the nodes that have come or are gone, if it is time to look; whether there are any."""
        if self._simulated or self.clock.now_ns() < self._looked_ns + _LOOK_S * NS_PER_S:
            return False
        self._looked_ns = self.clock.now_ns()
        nodes, at_ns = self.nodes, self._next_ns()
        present = set(self._grid.get_node_ids())
        self._refused &= present  # It may return with another configuration.
        online = {client: nodes.of_client[client] for client in nodes.online_clients(0).tolist()}
        gone = [client for client, node in online.items() if node not in present]
        for client in gone:
            self._happened("gone", client, {}, at_ns)
        new = sorted(present.difference(online.values()))
        if self._introduce:
            # Nodes on one machine must not all start a process at once.
            most = max(_FIRST_INTRODUCTIONS, len(nodes.of_client)) - len(self._introducing)
            known = {*self._refused, *self._introducing.values()}
            unknown = [node for node in new if node not in known]
            for node in unknown[: max(0, most)]:
                for message_id in self._grid.push_messages([introduction(node, self._ttl_s)]):
                    self._introducing[message_id] = node
            return bool(gone)
        numbers = nodes.numbers_of(new)
        for node, client in numbers.items():
            self._happened("came", client, {"node": node}, at_ns)
        for node in set(new) - numbers.keys() - self._refused:
            self._refuse(
                node, f"all {nodes.clients} clients of the scenario (task.clients) have nodes"
            )
        return bool(gone or numbers)

    def _introduced(self, node: int, reply: fl.Message) -> None:
        """Give a node to the client whose number it has."""
        try:
            client = introduced(reply, self.nodes.clients)
        except Refused as refused:
            if refused.why != "offline":  # Otherwise it is asked again if it is there.
                self._refuse(node, str(refused))
        else:
            self._happened("came", client, {"node": node})

    def _refuse(self, node: int, why: str) -> None:
        self._refused.add(node)
        self._note(f"Node {node} gets no work: {why}.")

    def _note(self, text: str, *, log: bool = True) -> None:
        """Write a sentence to the log and to the run."""
        text = printable(text)  # It may contain what a node has sent.
        if log:
            LOGGER.warning("%s", text)
        notes = list(self._folder.read_info().get("notes", []))
        if text not in notes and len(notes) < _NOTES:
            self._folder.update_info(notes=[*notes, text])
