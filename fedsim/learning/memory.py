"""Rows that clients keep between dispatches and rows that wait for an aggregation, in memory or on disk."""

from __future__ import annotations

import itertools
import math
import tempfile
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from fedsim.methods.base import Memory
from fedsim.processes.cluster import machine_bytes
from fedsim.scenario.training import Training
from fedsim.vocabulary.arrays import Ints

_BLOCK_BYTES = 64 << 20
# Bytes of rows that a checkpoint reads at once.
_PIECE_BYTES = 64 << 20
_FEWEST_IN_BLOCK = 16
_HOST_BYTES = 4 << 30
_HOST_SHARE = 0.25
_DEVICE_SHARE = 0.25


def host_budget(most_bytes: int = _HOST_BYTES, share: float = _HOST_SHARE) -> int:
    """Bytes of this machine's memory that may be used: ``most_bytes``, or a ``share`` of the memory if that is less."""
    memory_bytes = machine_bytes()
    return most_bytes if memory_bytes is None else min(most_bytes, int(share * memory_bytes))


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that the rows of all stores may occupy in each tier, without limit if infinite; others go to the next tier.

    Attributes:
        device_bytes: bytes on the compute device (on CPU the same as the host).
        host_bytes: bytes in the host's memory.
        folder: folder of the disk tier's files; the system's temporary folder if None.
    """

    device_bytes: float
    host_bytes: float
    folder: Path | None = None

    @classmethod
    def of(cls, training: Training, device: torch.device, folder: Path | None = None) -> Budget:
        """The budget that a training section requests on this machine."""
        memory, on_cuda = training.memory, device.type == "cuda"
        if memory == "disk":
            return cls(0, 0, folder)
        if memory == "host" or (memory == "device" and not on_cuda):
            return cls(0, math.inf, folder)
        device_bytes = 0.0
        if on_cuda:
            total = torch.cuda.get_device_properties(device).total_memory
            device_bytes = math.inf if memory == "device" else _DEVICE_SHARE * total
        return cls(device_bytes, host_budget(), folder)


class _Rows(dict[int, int]):
    """Rows of one tier in memory: the slot of each key.

    They lie in large blocks, so that rows and temporary matrices do not fragment the heap.
    """

    def __init__(self, elements: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self._free: list[int] = []
        self._new_block = partial(torch.empty, dtype=dtype, device=device)
        self._elements = elements
        self._most_in_block = max(1, _BLOCK_BYTES // max(1, elements * dtype.itemsize))
        self._rows: list[Tensor] = []

    def put(self, key: int, row: Tensor) -> None:
        if key not in self:
            self[key] = self._free.pop() if self._free else self._grow()
        self._write(self[key], row)

    def read(self, key: int) -> Tensor:
        return self._read(self[key])

    def drop(self, key: int) -> None:
        if key in self:
            self._free.append(self.pop(key))

    def _grow(self) -> int:
        """A new slot, in a block that doubles the number of rows, within bounds."""
        first = len(self._rows)
        count = min(max(first, _FEWEST_IN_BLOCK), self._most_in_block)
        self._rows.extend(self._new_block((count, self._elements)))
        self._free.extend(range(first + count - 1, first, -1))
        return first

    def _write(self, slot: int, row: Tensor) -> None:
        self._rows[slot].copy_(row)

    def _read(self, slot: int) -> Tensor:
        return self._rows[slot]


class _DiskRows(_Rows):
    """Rows in a temporary file that is deleted with the object.

    The file is read and written, not mapped: mapped pages would count as memory of the process.
    """

    def __init__(self, elements: int, dtype: torch.dtype, folder: Path | None) -> None:
        super().__init__(elements, dtype, torch.device("cpu"))
        self._row_bytes = elements * dtype.itemsize
        self._dtype = dtype
        self._folder = folder

    def _grow(self) -> int:
        return len(self)

    @cached_property
    def _file(self) -> IO[bytes]:
        # Unbuffered: rows are long, and are read and written as a whole.
        return tempfile.TemporaryFile(  # closed with the object
            prefix="fedsim-", suffix=".rows", dir=self._folder, buffering=0
        )

    def _write(self, slot: int, row: Tensor) -> None:
        self._file.seek(slot * self._row_bytes)
        plain = row.detach().to(device="cpu", dtype=self._dtype).contiguous()
        plain.view(torch.uint8).numpy().tofile(self._file)

    def _read(self, slot: int) -> Tensor:
        self._file.seek(slot * self._row_bytes)
        data = np.fromfile(self._file, np.uint8, self._row_bytes)
        return torch.from_numpy(data).view(self._dtype)


class RowStore:
    """Rows of equal length by key, those for which memory had no room on slower tiers. All tiers hold the same bits.

    Keys that were never stored have the row ``initial`` (elements,), zeros if None.
    """

    def __init__(
        self,
        elements: int,
        dtype: torch.dtype,
        device: torch.device,
        budget: Budget,
        initial: Tensor | None = None,
    ) -> None:
        self.elements = elements
        self.dtype = dtype
        self.device = device
        start = torch.zeros(elements, dtype=dtype) if initial is None else initial
        self._initial = start.to(device=device, dtype=dtype)
        row_bytes = max(1, elements * dtype.itemsize)
        limits = [(torch.device("cpu"), budget.host_bytes)]
        if device.type != "cpu":
            limits.insert(0, (device, budget.device_bytes))
        self._tiers: list[tuple[_Rows, float]] = [
            (_Rows(elements, dtype, tier), limit / row_bytes) for tier, limit in limits
        ]
        self._tiers.append((_DiskRows(elements, dtype, budget.folder), math.inf))
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(len(rows) for rows, _ in self._tiers)

    def __contains__(self, key: int) -> bool:
        return any(key in rows for rows, _ in self._tiers)

    def keys(self) -> list[int]:
        """Keys that have been stored, ascending."""
        return sorted(key for rows, _ in self._tiers for key in rows)

    def get(self, keys: Ints | Sequence[int]) -> Tensor:
        """The rows of these keys, (B, elements), on the device; a copy."""
        with self._lock:
            result = torch.empty(len(keys), self.elements, dtype=self.dtype, device=self.device)
            for index, key in enumerate(np.asarray(keys).tolist()):
                stored = (rows.read(key) for rows, _ in self._tiers if key in rows)
                result[index].copy_(next(stored, self._initial))
            return result

    def holds(self, count: int) -> bool:
        """Whether that many rows fit into the first tier."""
        return self._tiers[0][1] >= count

    def views(self, keys: Ints) -> list[Tensor]:
        """The stored rows of these keys, (elements,) each, for a store that :meth:`holds` all rows."""
        tier, _ = self._tiers[0]
        with self._lock:
            for key in keys.tolist():
                if key not in tier:
                    tier.put(key, self._initial)
            return [tier.read(key) for key in keys.tolist()]

    def put(self, keys: Ints | Sequence[int], rows: Tensor) -> None:
        """Replace the rows of these keys by ``rows`` (B, elements)."""
        with self._lock:
            for key, row in zip(np.asarray(keys).tolist(), rows, strict=True):
                holding = (tier for tier, _ in self._tiers if key in tier)
                room = (tier for tier, most in self._tiers if len(tier) + 1 <= most)
                (next(holding, None) or next(room)).put(key, row)

    def drop(self, key: int) -> None:
        """Forget a key's row."""
        with self._lock:
            for rows, _ in self._tiers:
                rows.drop(key)


class StateStore:
    """The memories that a method declares: one :class:`RowStore` each, which share a budget by size.

    Some start from the initial ``model`` (P,).
    """

    def __init__(
        self,
        memories: Mapping[str, Memory],
        dtype: torch.dtype,
        device: torch.device,
        budget: Budget,
        model: Tensor,
    ) -> None:
        total = max(1, sum(memory.elements for memory in memories.values()))
        on_device, in_host = budget.device_bytes / total, budget.host_bytes / total
        self.of_clients = tuple(
            name for name, memory in memories.items() if memory.keeper != "server"
        )
        self.unseen_by_server = frozenset(
            name for name, memory in memories.items() if memory.keeper == "client"
        )
        self._stores = {
            name: RowStore(
                memory.elements,
                memory.dtype or dtype,
                device,
                Budget(on_device * memory.elements, in_host * memory.elements, budget.folder),
                memory.initial_row(model),
            )
            for name, memory in memories.items()
        }

    def __getitem__(self, name: str) -> RowStore:
        return self._stores[name]

    def rows(self, clients: Ints, besides: Container[str] = ()) -> dict[str, Tensor]:
        """Memories that clients see, ``besides`` others, name to (B, elements)."""
        names = [name for name in self.of_clients if name not in besides]
        return {name: self._stores[name].get(clients) for name in names}

    def row(self, name: str, client: int) -> Tensor:
        """The row of a client in a memory of the server, (elements,)."""
        return self._stores[name].get([client])[0]

    def put(self, name: str, client: int, row: Tensor) -> None:
        """Replace that row."""
        self._stores[name].put([client], row.unsqueeze(0))

    def keys(self, name: str) -> list[int]:
        """Clients that have a row in a memory, ascending."""
        return self._stores[name].keys()

    def clients(self) -> Ints:
        """Clients that have a row in any memory that clients see, ascending."""
        keys = {key for name in self.of_clients for key in self.keys(name)}
        return np.array(sorted(keys), dtype=np.int64)

    def tensors(self, prefix: str = "", ready: Mapping[str, Tensor] = {}) -> Tensors:
        """All rows for a checkpoint, in pieces, with ``prefix`` before their names; after the tensors in ``ready``."""
        makers: dict[str, Tensor | Callable[[], Tensor]] = dict(ready)
        for name, store in self._stores.items():
            rows = max(1, _PIECE_BYTES // max(1, store.elements * store.dtype.itemsize))
            keys = store.keys()
            for number, start in enumerate(range(0, len(keys), rows)):
                piece = keys[start : start + rows]
                makers[f"{prefix}{name}.clients.{number}"] = partial(torch.tensor, piece)
                makers[f"{prefix}{name}.rows.{number}"] = partial(store.get, piece)
        return Tensors(makers)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the rows of :meth:`tensors`, without their prefix."""
        for name in self._stores:
            for number in itertools.count():
                if f"{name}.clients.{number}" not in tensors:
                    break
                clients = tensors[f"{name}.clients.{number}"].numpy()
                self._stores[name].put(clients, tensors[f"{name}.rows.{number}"])


class Tensors(Mapping[str, Tensor]):
    """Tensors by name, some made on access, from the state at that moment, so that not all are in memory at once."""

    def __init__(self, made: Mapping[str, Tensor | Callable[[], Tensor]]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> Tensor:
        value = self._made[name]
        return value if isinstance(value, Tensor) else value()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
