"""Traces and data sets that the runs of a sweep share, so that each of them is read once."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import mmap
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
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


class Mapped:
    """Objects whose arrays several processes map into their memory, from files that the first of them writes.

    A process that writes into such an array changes only its own copy.

    Args:
        folder: an empty folder for the files, known only to these processes, which trust its content.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, load: Callable[[], T]) -> T:
        """The object of this key, which ``load`` returns if no process has loaded it.

        An object that cannot be pickled, or for which the disk has no room, is loaded by every process.
        """
        path = self._folder / hashlib.sha256(key.encode()).hexdigest()
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                value = load()
                try:
                    _write(value, path)
                except (OSError, pickle.PicklingError, AttributeError, TypeError):
                    return value
                del value
        return cast(T, _read(path))


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


def _read(path: Path) -> object:
    # Written by another process of the same sweep.
    places, content = pickle.loads(path.read_bytes())  # noqa: S301
    with open(path.with_suffix(".arrays"), "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    buffers = [view[start:end] for start, end in places]
    return pickle.loads(content, buffers=buffers)  # noqa: S301


class Bundles:
    """Trace bundles by folder, each read once."""

    def __init__(self, mapped: Mapped | None = None) -> None:
        self._loaded: dict[Path, TraceBundle] = {}
        self._mapped = mapped

    def read(self, path: Path) -> TraceBundle:
        """The bundle in ``path``.

        Raises:
            UserError: it is missing, damaged or inconsistent.
        """
        path = Path(os.path.realpath(path))
        if path not in self._loaded:

            def read() -> TraceBundle:
                bundle = TraceBundle.read(path)
                require_sound(bundle)
                return bundle

            mapped = self._mapped
            self._loaded[path] = mapped.get(f"trace {path}", read) if mapped else read()
        return self._loaded[path]

    def forget(self) -> None:
        """Release all bundles; they are read again if they are needed."""
        self._loaded.clear()
        pa.default_memory_pool().release_unused()


class Datasets:
    """Data sets by name, parameters and folder; the most recently used ones are kept."""

    def __init__(self, mapped: Mapped | None = None) -> None:
        self._loaded: OrderedDict[tuple[type, str, Path], Dataset] = OrderedDict()
        self._mapped = mapped

    def load(self, component: DatasetComponent, folder: Path) -> Dataset:
        """The data set that ``component.load(folder)`` returns.

        Raises:
            UserError: the data is missing or damaged.
        """
        key = (type(component), component.params.model_dump_json(), folder.resolve())
        dataset = self._loaded.pop(key, None)
        if dataset is None:
            dataset = self._load(component, folder) if self._mapped else component.loaded(folder)
        self._loaded[key] = dataset
        if len(self._loaded) > KEPT_DATASETS:
            self._loaded.popitem(last=False)
        return dataset

    def _load(self, component: DatasetComponent, folder: Path) -> Dataset:
        assert self._mapped is not None
        kind = type(component)
        names = (kind.__module__, kind.__qualname__, component.params.model_dump_json(), folder)

        def load() -> Dataset:
            dataset = component.loaded(folder)
            # Deferred samples are read now.
            return dataclasses.replace(dataset)

        return self._mapped.get(f"data {names}", load)


@dataclass(frozen=True)
class Shared:
    """Traces and data sets that have been loaded.

    Attributes:
        bundles: trace bundles by folder.
        datasets: data sets by name and parameters.
    """

    bundles: Bundles = field(default_factory=Bundles)
    datasets: Datasets = field(default_factory=Datasets)

    @classmethod
    def through(cls, folder: Path | None) -> Shared:
        """Objects shared by several processes through files in ``folder``; objects of this process alone if None."""
        mapped = None if folder is None else Mapped(folder)
        return cls(Bundles(mapped), Datasets(mapped))
