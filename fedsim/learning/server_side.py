"""The server's side of learning: versions, clients' memories, and updates that wait for an aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.contract import Contract, Named
from fedsim.learning.memory import Budget, StateStore
from fedsim.learning.pending import Versions
from fedsim.learning.updates import Contributions, WaitingUpdates
from fedsim.learning.workers import Group, Station
from fedsim.methods.base import LocalUpdate, ServerState
from fedsim.vocabulary.timeline import Aggregate, Train

# Personal models assembled at once when they are saved.
_PERSONAL_ROWS = 64


class ServerSide:
    """Everything that changes as updates are trained and aggregated; rows beyond the memory are in ``folder``.

    Attributes:
        current: the server state at :attr:`version`.
        version: the newest version.
        versions: states that dispatches and evaluations still need.
        waiting: vectors of trained dispatches.
        store: memories of the clients.
    """

    def __init__(self, station: Station, folder: Path | None = None) -> None:
        self._task = station.task
        self._method = method = station.method
        self._device = device = station.execution.device
        dtype = station.execution.dtype
        self.current: ServerState = station.server
        self._contract = Contract(method)
        self._contract.check_state(self.current, "initial_state")
        self.version = 0
        memories = method.memories()
        budget = Budget.of(station.training, device, folder)
        self.store = StateStore(memories, dtype, device, budget, station.server["model"])
        self._kept_when_lost = {name for name, memory in memories.items() if memory.kept_when_lost}
        prologue = method.prologue()
        self._has_prologue = prologue is not None
        others = prologue.upload if prologue else ()
        self.waiting = WaitingUpdates(method.upload(), dtype, device, folder=folder, others=others)
        self.versions = Versions(tuple(vector.name for vector in method.download()))
        self.versions.publish(0, self.current)

    def group(self, trains: Sequence[Train]) -> Group:
        """The group that a worker needs to train these dispatches."""
        clients = np.array([train.client for train in trains])
        sent = [self.versions.sent(train.version) for train in trains]
        rate = self._method.context.learning_rate
        return Group(
            columns={
                "clients": clients,
                "sequences": np.array([train.sequence for train in trains]),
                "versions": np.array([train.version for train in trains]),
                "rounds": np.array([train.round for train in trains]),
                "steps": np.array([train.steps for train in trains]),
                "steps_assigned": np.array([train.steps_assigned for train in trains]),
                "samples": self._task.samples[clients],
                "in_full": np.array([train.in_full or not train.sequence for train in trains]),
            },
            learning_rates=tuple(rate(train.round, train.dispatched_s) for train in trains),
            down={name: [vectors[name] for vectors in sent] for name in sent[0]},
            memory=partial(self.store.rows, clients),
        )

    def receive(self, trains: Sequence[Train], update: LocalUpdate) -> None:
        """Keep the result of a group's training: vectors until their aggregation, and memories of the clients."""
        clients = np.array([train.client for train in trains])
        in_prologue = self._has_prologue and trains[0].version == 0
        self._contract.check_update(update, len(trains), in_prologue=in_prologue)
        self.waiting.put([train.dispatch_id for train in trains], update.vectors)
        used = np.flatnonzero([train.used for train in trains])
        for name, rows in update.memory.items():
            if len(used) == len(trains) or name in self._kept_when_lost:
                self.store[name].put(clients, rows)
            else:
                self.store[name].put(clients[used], rows[used])
        for train in trains:
            self.versions.release(train.version)

    def aggregate(self, instruction: Aggregate, trains: Sequence[Train]) -> None:
        """Make the next version from the updates of ``trains``, the instruction's contributions."""
        updates = Contributions(instruction, trains, self.waiting, self.store, self._method.context)
        with self._contract.unchanged(self.current):
            state = self._method.aggregate(Named(self.current), updates)
        self._contract.check_state(state, "aggregate")
        self.current = state
        self.version = instruction.version
        self.versions.publish(self.version, self.current)
        for train in trains:
            self.waiting.drop(train.dispatch_id)

    # -- results ------------------------------------------------------------------------------------------------------

    def named_model(self) -> dict[str, Tensor]:
        """The global model by the names of its tensors, on the CPU."""
        model = self.current["model"].cpu()
        views = self._task.layout.views(model)
        return {name: view.clone() for name, view in views.items()} | self._task.fixed(model.dtype)

    def personal_parts(self) -> dict[str, Tensor]:
        """The personal tensors of participating clients, on the CPU; empty if nothing is personal.

        ``clients`` (C,) int64, ascending, and each personal tensor of the model as (C, *shape).
        """
        names = self._method.personal_parts()
        clients = self.store.clients()
        if not names or not len(clients):
            return {}
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for batch in np.array_split(clients, -(-len(clients) // _PERSONAL_ROWS)):
            models = self._method.personal_models(self.current, batch, self.store.rows(batch))
            views = self._task.layout.views(models.cpu().contiguous())
            for name, rows in parts.items():
                rows.append(views[name].clone())
        stacked = {name: torch.cat(rows) for name, rows in parts.items()}
        return {"clients": torch.from_numpy(clients), **stacked}

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """The server's tensors for a checkpoint, without the memories in :attr:`store`."""
        tensors = {f"server/{name}": value for name, value in self.current.items()}
        for version, sent in self.versions.kept().items():
            if version != self.version:
                tensors |= {f"sent/{version}/{name}": value for name, value in sent.items()}
        for dispatch_id in self.waiting.ids():
            for name, row in self.waiting.rows(dispatch_id).items():
                tensors[f"waiting/{dispatch_id}/{name}"] = row
        return tensors

    def restore(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Take over the tensors of a checkpoint that was taken at ``version``, memories included."""
        sections: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            section, _, rest = name.partition("/")
            sections.setdefault(section, {})[rest] = value
        device = self._device
        self.current = {name: value.to(device) for name, value in sections["server"].items()}
        self.version = version
        sent = _by_number(sections.get("sent", {}), device)
        self.versions.restore(version, self.current, sent)
        self.store.load(sections.get("memory", {}))
        for dispatch_id, vectors in _by_number(sections.get("waiting", {}), device).items():
            rows = {name: vector.unsqueeze(0) for name, vector in vectors.items()}
            self.waiting.put([dispatch_id], rows)


def _by_number(tensors: Mapping[str, Tensor], device: torch.device) -> dict[int, dict[str, Tensor]]:
    """Tensors named ``number/name``, by number and name."""
    result: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition("/")
        result.setdefault(int(number), {})[name] = value.to(device)
    return result
