"""Workers in processes on a Ray cluster."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedsim.errors import ProcessLost, UserError
from fedsim.learning.device import make_reproducible
from fedsim.learning.workers.base import Group, Workers, require_same
from fedsim.learning.workers.local import LocalWorkers, Pool
from fedsim.learning.workers.station import Station
from fedsim.methods.base import LocalUpdate
from fedsim.processes.cluster import connect_to_ray, usable_cores
from fedsim.scenario.training import RayWorkers

Build = Callable[[], Station]
"""Builds the station of a run again; must be picklable for other processes: a module's function or plain data."""

_WHERE = "training.workers"
_CPU = torch.device("cpu")
# Number of checks for free resources of a busy cluster, and seconds between them.
_LOOKS = 60
_LOOK_S = 0.5


def _pack(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size, Any]]:
    """Tensors for another process: type, shape and the bits as an array, which Ray transfers without a copy."""
    packed = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        packed[name] = (plain.dtype, plain.shape, plain.view(-1).view(torch.uint8).numpy())
    return packed


def _unpack(packed: Mapping[str, Any], device: torch.device = _CPU) -> dict[str, Tensor]:
    """The tensors in memory of this process."""
    tensors = {}
    for name, (dtype, shape, bits) in packed.items():
        tensor = torch.empty(shape, dtype=dtype)
        tensor.view(-1).view(torch.uint8).numpy()[:] = bits
        tensors[name] = tensor.to(device)
    return tensors


class _Process:
    """The actor in a process of the cluster, which trains ``threads`` groups at once."""

    def __init__(self, build: Build, threads: int) -> None:
        self._build = build
        self._threads = threads

    def prepare(self) -> Mapping[str, str | int]:
        """Build data, kernel and method; returns everything that the bits of the results depend on here."""
        station = self._build()
        make_reproducible(tf32=station.execution.tf32)
        self._workers = LocalWorkers(station.workers(self._threads), Pool(1), {})
        return station.describe()

    def train(
        self, group: Group, memory: Any, down: Mapping[str, Sequence[int]], *vectors: Any
    ) -> tuple[Any, Any, Any]:
        """Train a group; returns its vectors, losses and memories. All tensors are packed.

        ``down`` has, for each received vector, the number among ``vectors`` of the one that each dispatch received.
        """
        torch.set_num_threads(1)
        rows = _unpack(memory)
        each = [_unpack(vector)[""] for vector in vectors]
        received = {name: [each[i] for i in index] for name, index in down.items()}
        complete = replace(group, down=received, memory=lambda: rows)
        (update,) = self._workers.train([complete])
        return _pack(update.vectors), _pack({"": update.loss}), _pack(update.memory)


class RemoteWorkers(Workers):
    """Processes on a Ray cluster, each with its own data, kernel and method.

    A group goes to the process with the fewest pending groups. Vectors that several clients receive are sent only
    once per wave.

    Args:
        build: builds the station in a process, on a device of the same type as ``device``.
        settings: number of processes and address of the cluster.
        threads: number of groups that a process trains at once.
        device: device to which updates are moved.
    """

    def __init__(
        self, build: Build, settings: RayWorkers, threads: int, device: torch.device
    ) -> None:
        self._build = build
        self._settings = settings
        self._threads = threads
        self._device = device
        self._on_cuda = device.type == "cuda"
        self._ray: Any = None
        self._connected = False
        self._processes: list[Any] = []
        self.count = 0

    def start(self, expected: Mapping[str, str | int]) -> None:
        """Connect to the cluster, or start one, and build a station in every process.

        Raises:
            UserError: there is no cluster, it has too few free resources, or its nodes would compute different bits.
        """
        try:
            self._connect()
            count = self._room()
            remote = self._ray.remote(_Process).options(
                num_gpus=int(self._on_cuda),
                num_cpus=0 if self._on_cuda else self._threads,
                max_restarts=0,
                max_concurrency=self._threads,
                scheduling_strategy="SPREAD",
            )
            self._processes = [remote.remote(self._build, self._threads) for _ in range(count)]
            self.count = count * self._threads
            waiting = [process.prepare.remote() for process in self._processes]
            for described in map(self._get, waiting):
                require_same(described, expected)
        except BaseException:
            self.stop()
            raise

    def _connect(self) -> None:
        import ray

        self._ray = ray
        # Inside a Ray task, or a program that uses Ray itself, a connection exists already and must not be closed.
        if ray.is_initialized():
            return
        settings, room = self._settings, {}
        if settings.address is None and not self._on_cuda:
            cores = None if settings.count is None else settings.count * self._threads
            room = {"num_cpus": cores or usable_cores()}
        connect_to_ray(settings.address, _WHERE, **room)
        self._connected = True

    def _room(self) -> int:
        """The number of processes to start."""
        unit, each = ("GPU", 1) if self._on_cuda else ("CPU", self._threads)
        count = self._settings.count
        # Resources that another program has just released become free with a delay.
        for _ in range(_LOOKS):
            free = int(self._ray.available_resources().get(unit, 0))
            if free >= (count or 1) * each:
                return count or free // each
            time.sleep(_LOOK_S)
        raise UserError(
            f"{count or 1} processes need {(count or 1) * each} {unit}s, but the cluster has only {free} free",
            where=f"{_WHERE}.count",
            hint="request fewer, or leave it out to use all free resources",
        )

    def train(self, groups: Sequence[Group]) -> Iterator[LocalUpdate]:
        """Updates of the groups, in order."""
        sent: dict[int, Any] = {}
        busy: dict[Any, int] = {}
        load = [0] * len(self._processes)
        ahead: deque[Any] = deque()
        for group in groups:
            if busy:
                done, _ = self._ray.wait(list(busy), num_returns=len(busy), timeout=0)
                for reference in done:
                    load[busy.pop(reference)] -= 1
            number = load.index(min(load))
            reference = self._submit(self._processes[number], group, sent)
            load[number] += 1
            busy[reference] = number
            ahead.append(reference)
            if len(ahead) > 2 * self.count:
                yield self._update(ahead.popleft())
        while ahead:
            yield self._update(ahead.popleft())

    def _submit(self, process: Any, group: Group, sent: dict[int, Any]) -> Any:
        """Submit a group to a process; vectors are put into Ray's store on first use."""
        vectors = {id(vector): vector for rows in group.down.values() for vector in rows}
        for key, vector in vectors.items():
            if key not in sent:
                sent[key] = self._ray.put(_pack({"": vector}))
        numbers = {key: number for number, key in enumerate(vectors)}
        down = {name: [numbers[id(row)] for row in rows] for name, rows in group.down.items()}
        references = [sent[key] for key in vectors]
        stored = {name: torch.stack(rows) for name, rows in group.in_place.items()}
        bare = replace(group, down={}, memory=dict, in_place={})
        memory = _pack({**group.memory(), **stored})
        return process.train.remote(bare, memory, down, *references)

    def _update(self, reference: Any) -> LocalUpdate:
        vectors, loss, memory = (_unpack(packed, self._device) for packed in self._get(reference))
        return LocalUpdate(vectors, loss[""], memory)

    def _get(self, reference: Any) -> Any:
        """A result from a process; an exception there is raised here.

        Raises:
            ProcessLost: the process was lost.
        """
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except errors.RayError as error:
            raise ProcessLost(
                f"a process of the cluster was lost: {str(error).strip().splitlines()[0]}",
                where=_WHERE,
                hint="it may have run out of memory; 'fedsim resume' continues from the last checkpoint",
            ) from error

    def stop(self) -> None:
        """End the workers."""
        processes, self._processes = self._processes, []
        with contextlib.suppress(Exception):
            for process in processes:
                self._ray.kill(process)
        if self._connected:
            self._connected = False
            with contextlib.suppress(Exception):
                self._ray.shutdown()

    def describe(self) -> Mapping[str, str | int]:
        """Type and number of workers."""
        return {"workers": self.count, "workers_are": "ray"}
