"""Traces and data sets that the runs of a sweep share, so that each of them is read once."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import mmap
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from filelock import FileLock

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.validation import require_sound

KEPT_DATASETS = 4
"""Maximum number of data sets in memory; the least recently used one is dropped."""

T = TypeVar("T")
# Arrays begin at multiples of it, as in memory.
_ALIGNMENT = 64


class Shared:
    """Traces by folder, and data sets by name, parameters and folder; each is read once.

    Several processes can map the arrays of both into their memory, from files that the first of them writes. A process
    that writes into such an array changes only its own copy.

    Args:
        folder: an empty folder for these files, known only to these processes, which trust its content; None for
            objects of this process alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._traces: dict[Path, TraceBundle] = {}
        self._datasets: dict[tuple[type, str, Path], Dataset] = {}

    def trace(self, path: Path) -> TraceBundle:
        """The trace bundle in ``path``, which is refused if it is missing, damaged or inconsistent."""
        path = Path(os.path.realpath(path))

        def read() -> TraceBundle:
            bundle = TraceBundle.read(path)
            require_sound(bundle)
            return bundle

        if path not in self._traces:
            self._traces[path] = self.mapped(f"trace {path}", read)
        return self._traces[path]

    def forget_traces(self) -> None:
        """Release all traces; they are read again if they are needed."""
        self._traces.clear()
        pa.default_memory_pool().release_unused()

    def dataset(self, component: DatasetComponent, folder: Path) -> Dataset:
        """The data set that ``component.load(folder)`` returns; the most recently used ones are kept."""
        kind, params, folder = type(component), component.params.model_dump_json(), folder.resolve()

        def load() -> Dataset:
            dataset = component.loaded(folder)
            # Deferred samples are read before they are shared.
            return dataset if self._folder is None else dataclasses.replace(dataset)

        dataset = self._datasets.pop((kind, params, folder), None)
        if dataset is None:
            key = f"data {(kind.__module__, kind.__qualname__, params, folder)}"
            dataset = self.mapped(key, load)
        self._datasets[kind, params, folder] = dataset
        if len(self._datasets) > KEPT_DATASETS:
            del self._datasets[next(iter(self._datasets))]
        return dataset

    def mapped(self, key: str, load: Callable[[], T]) -> T:
        """The object of this key, which ``load`` returns if no process has loaded it.

        An object that cannot be pickled, or for which the disk has no room, is loaded by every process.
        """
        if self._folder is None:
            return load()
        path = self._folder / hashlib.sha256(key.encode()).hexdigest()
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                value = load()
                try:
                    _write(value, path)
                except (OSError, pickle.PicklingError, AttributeError, TypeError):
                    return value
                del value
        # Written by another process of the same sweep.
        places, content = pickle.loads(path.read_bytes())  # noqa: S301
        with open(path.with_suffix(".arrays"), "rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        buffers = [view[start:end] for start, end in places]
        return cast(T, pickle.loads(content, buffers=buffers))  # noqa: S301


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        if isinstance(value, np.memmap):
            raise pickle.PicklingError("is mapped from a file already")
        return NotImplemented


def _write(value: object, path: Path) -> None:
    buffers: list[pickle.PickleBuffer] = []
    content = io.BytesIO()
    _Pickler(content, protocol=5, buffer_callback=buffers.append).dump(value)
    places = []
    with open(path.with_suffix(".arrays"), "wb") as file:
        # A file without content cannot be mapped.
        file.write(bytes(_ALIGNMENT))
        for buffer in buffers:
            start = file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
            places.append((start, start + file.write(buffer.raw())))
    # Complete once it has its name.
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(pickle.dumps((places, content.getvalue())))
    unfinished.rename(path)
