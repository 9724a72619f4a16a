"""The servers' side of learning: versions, clients' memories, and updates that wait for an aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.contract import Contract, Named
from fedsim.learning.device import Execution
from fedsim.learning.memory import Budget, StateStore
from fedsim.learning.pending import Models
from fedsim.learning.updates import Combinations, Contributions, WaitingUpdates
from fedsim.learning.workers import Group, Station, cohort_of
from fedsim.methods.base import Cohort, LocalUpdate, Method, ServerState
from fedsim.parts.component import is_bundled
from fedsim.vocabulary.timeline import Adopt, Aggregate, Gather, Train


class ServerSide:
    """Everything that changes as the updates of one level of clients are trained and aggregated.

    Args:
        station: task, method and device.
        folder: folder for rows that do not fit into memory.
        cloud: the method of the cloud, whose clients are edge servers; the method of the station if None. The cloud
            computes in double precision, in which the difference between two models of an edge server is exact.
        in_place: whether all clients are trained in this process, and may change their memories in place.

    Attributes:
        waiting: vectors of trained dispatches.
        store: memories of the clients.
    """

    def __init__(
        self,
        station: Station,
        folder: Path | None = None,
        cloud: Method | None = None,
        *,
        in_place: bool = True,
    ) -> None:
        self._task = station.task
        self._method = method = cloud or station.method
        self._device = device = station.execution.device
        dtype = station.execution.dtype
        state: ServerState = station.server
        if cloud is not None:
            dtype = cloud.context.dtype
            state = cloud.initial_state(station.server["model"].to(dtype))
        self._contract = Contract(method)
        self._contract.check_state(state, "initial_state")
        self._initial = state
        self._sent = tuple(vector.name for vector in method.download())
        # By edge server; -1 is the only server, or the cloud.
        self._models: dict[int, Models] = {}
        # By edge server, clients whose memories end with its next model of the cloud.
        self._remembered: dict[int, set[int]] = {}
        memories = method.memories()
        budget = Budget.of(station.training, device, folder)
        self.store = StateStore(memories, dtype, device, budget, state["model"])
        self._in_place = [
            name
            for name, memory in memories.items()
            if in_place
            and memory.in_place
            and device.type == "cpu"
            and self.store[name].holds(len(station.task.samples))
        ]
        self._restarting = [name for name, memory in memories.items() if memory.restarts]
        self._kept_when_lost = {name for name, memory in memories.items() if memory.kept_when_lost}
        first = method.sent_at(0)
        self.waiting = WaitingUpdates(method.upload(), dtype, device, folder=folder, others=first)
        # Whether several versions may be made by one product. A user's aggregation is called once for each, and so is
        # one that changes memories.
        self._combines = (
            is_bundled(type(method))
            and list(state) == ["model"]
            and len(method.upload()) == 1
            and all(memory.keeper == "client" for memory in memories.values())
        )

    def models(self, edge: int = -1) -> Models:
        """The models of the only server or the cloud, or of an edge server."""
        if edge not in self._models:
            self._models[edge] = Models(self._initial, self._sent)
        return self._models[edge]

    @property
    def current(self) -> ServerState:
        """The newest state of the only server, or of the cloud."""
        return self.models().current

    def has_model_of(self, train: Train) -> bool:
        """Whether the model from which a dispatch starts exists."""
        return train.model in self.models(train.edge).sent

    def group(self, trains: Sequence[Train]) -> Group:
        """The group that a worker needs to train these dispatches."""
        # A lost update must not change what its client keeps.
        in_place = self._in_place if all(train.used for train in trains) else []
        return Group(trains, partial(self._cohort, in_place))

    def _cohort(
        self, in_place: Sequence[str], trains: Sequence[Train], execution: Execution
    ) -> Cohort:
        clients = np.array([train.client for train in trains])
        sent = [self.models(train.edge).sent[train.model] for train in trains]
        rate = self._method.context.learning_rate
        return cohort_of(
            trains,
            execution,
            samples=self._task.samples[clients],
            rates=[rate(train.round, train.dispatched_s) for train in trains],
            down={name: [vectors[name] for vectors in sent] for name in sent[0]},
            memory=self.store.rows(clients, in_place),
            in_place={name: self.store[name].views(clients) for name in in_place},
        )

    def receive(self, trains: Sequence[Train], update: LocalUpdate) -> None:
        """Keep the result of a group's training: vectors until their aggregation, and memories of the clients."""
        clients = np.array([train.client for train in trains])
        self._contract.check_update(update, len(trains), trains[0].version)
        self.waiting.put([train.dispatch_id for train in trains], update.vectors)
        used = np.flatnonzero([train.used for train in trains])
        for name, rows in update.memory.items():
            if len(used) == len(trains) or name in self._kept_when_lost:
                self.store[name].put(clients, rows)
            else:
                self.store[name].put(clients[used], rows[used])
        for train in trains:
            self.models(train.edge).release(train.model)

    def combined(
        self, instructions: Sequence[Aggregate], trains: Sequence[Sequence[Train]]
    ) -> Sequence[ServerState | None]:
        """The next states, from one product, if all are sums of multiples of the model and the updates; else Nones.

        The method computes on factors in place of vectors. If that raises, its aggregations are executed one by one.
        """
        if len(instructions) == 1 or not self._combines:
            return [None] * len(instructions)
        model = self.models(instructions[0].edge).current["model"]
        name = self._method.upload()[0].name
        numbers = [train.dispatch_id for of_one in trains for train in of_one]
        combinations = Combinations(numbers, name)
        state: Any = {"model": combinations.model}
        factors = []
        given: Any = combinations, self.store, self._method.context
        try:
            for instruction, of_one in zip(instructions, trains, strict=True):
                updates = Contributions(instruction, of_one, *given)
                state = self._method.aggregate(Named(state), updates)
                factors.append(state["model"].factors)
        except Exception:
            self._combines = False
            return [None] * len(instructions)
        rows = [model, *(self.waiting.row(number, name) for number in numbers)]
        return [{"model": row} for row in self.waiting.product(np.stack(factors), rows)]

    def aggregate(
        self, instruction: Aggregate, trains: Sequence[Train], state: ServerState | None = None
    ) -> None:
        """Make the next version from the updates of ``trains``, unless its ``state`` is given."""
        models = self.models(instruction.edge)
        if state is None:
            given = self.waiting, self.store, self._method.context
            updates = Contributions(instruction, trains, *given)
            with self._contract.unchanged(models.current):
                state = self._method.aggregate(Named(models.current), updates)
            self._contract.check_state(state, "aggregate")
        models.publish(instruction.model, state)
        for train in trains:
            self.waiting.drop(train.dispatch_id)
        if self._restarting and instruction.edge >= 0:
            of_edge = self._remembered.setdefault(instruction.edge, set())
            of_edge.update(train.client for train in trains)

    # -- edge servers ---------------------------------------------------------------------------------------------

    def adopt(self, instruction: Adopt, cloud: ServerSide) -> None:
        """Replace the model of an edge server by one of the cloud; the rest of its state stays."""
        edge, dtype = instruction.edge, self.waiting.dtype
        models = self.models(edge)
        sent = {"model": cloud.models().sent[instruction.version]["model"].to(dtype)}
        if self._method.spans_edges:
            rows = cloud.store.rows(np.array([edge]))
            sent |= {name: row[0].to(dtype) for name, row in rows.items()}
        for client in self._remembered.pop(edge, ()):
            for name in self._restarting:
                self.store[name].drop(client)
        models.publish(instruction.model, {**models.current, **sent})

    def gather(self, instruction: Gather, edges: ServerSide) -> None:
        """Keep the update of an edge server until its aggregation: its model, or the change since it came from here."""
        train = instruction.train
        of_edge, own = edges.models(train.client), self.models()
        model = of_edge.sent[instruction.model]["model"].to(self.waiting.dtype)
        change = model - own.sent[train.version]["model"]
        if self._method.sends_buffers():
            trainable = self._task.layout.trainable
            change[trainable:] = model[trainable:]
        vectors = {"model": model, "delta": change}
        names = [vector.name for vector in self._method.upload()]
        self.waiting.put([train.dispatch_id], {name: vectors[name][None] for name in names})
        of_edge.release(instruction.model)
        own.release(train.version)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """The server's tensors for a checkpoint, without the memories in :attr:`store`."""
        tensors: dict[str, Tensor] = {}
        for edge, models in self._models.items():
            at = "" if edge < 0 else f"edge/{edge}/"
            tensors |= {f"{at}server/{name}": value for name, value in models.current.items()}
            for number, sent in models.sent.items():
                if number != models.number:
                    tensors |= {f"{at}sent/{number}/{name}": value for name, value in sent.items()}
            if edge >= 0:
                tensors[f"{at}number/at"] = torch.tensor(models.number)
            if edge in self._remembered:
                clients = sorted(self._remembered[edge])
                tensors[f"{at}remembered/clients"] = torch.tensor(clients)
        for dispatch_id in self.waiting.ids():
            for name in self.waiting.names(dispatch_id):
                tensors[f"waiting/{dispatch_id}/{name}"] = self.waiting.row(dispatch_id, name)
        return tensors

    def restore(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Take over the tensors of a checkpoint that was taken at ``version``, memories included."""
        sections, device = sections_of(tensors), self._device
        if "server" in sections:
            self._restore_models(-1, version, sections)
        for edge, named in _by_number(sections.get("edge", {}), device).items():
            of_edge = sections_of(named)
            self._restore_models(edge, int(of_edge["number"]["at"]), of_edge)
            if "remembered" in of_edge:
                self._remembered[edge] = set(of_edge["remembered"]["clients"].tolist())
        self.store.load(sections.get("memory", {}))
        for dispatch_id, vectors in _by_number(sections.get("waiting", {}), device).items():
            rows = {name: vector.unsqueeze(0) for name, vector in vectors.items()}
            self.waiting.put([dispatch_id], rows)

    def _restore_models(
        self, edge: int, number: int, sections: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        state = {name: value.to(self._device) for name, value in sections["server"].items()}
        models = self.models(edge)
        models.sent = dict(_by_number(sections.get("sent", {}), self._device))
        models.publish(number, state)


def sections_of(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Tensors named ``section/name``, by section and name."""
    sections: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        section, _, rest = name.partition("/")
        sections.setdefault(section, {})[rest] = value
    return sections


def _by_number(tensors: Mapping[str, Tensor], device: torch.device) -> dict[int, dict[str, Tensor]]:
    """Tensors named ``number/name``, by number and name."""
    return {
        int(number): {name: value.to(device) for name, value in named.items()}
        for number, named in sections_of(tensors).items()
    }
