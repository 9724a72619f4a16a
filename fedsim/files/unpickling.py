"""Pickles of plain data, read without calling anything else that the file names.

A pickle can name any function of any module and have it called. Traces and data sets from others need little:
numbers, text, lists, dictionaries, NumPy scalars and NumPy arrays. Every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsim.vocabulary.arrays import Array

_SIMPLE = re.compile(r"[biufcSU]\d+|O\d*")
_CONTAINERS = {dict, list, tuple}
_MOST_SHARED = 1_000_000
"""Values beyond the bytes of the file, each of which is at most one value if no list is in several others."""


class RefusedPickle(ValueError):
    """The pickle names something that is not plain data; nothing was called."""


class DamagedPickle(ValueError):
    """The pickle is truncated or malformed."""


def load_plain(data: bytes, *, encoding: str = "ASCII") -> Any:
    """The content of a pickle of plain data.

    Args:
        data: the pickle, of any protocol.
        encoding: how text written by Python 2 is decoded.

    Raises:
        RefusedPickle: it names a class or function that is not on the list; the message names it.
        DamagedPickle: it is truncated or malformed.
    """
    try:
        stream = io.BytesIO(data)
        content = _Unpickler(stream, encoding=encoding).load()
        if stream.read(1):
            raise DamagedPickle("bytes follow its end")
        _require_few(content, len(data) + _MOST_SHARED)
        return content
    except RefusedPickle:
        raise
    # The decoder fails on damaged data in many ways: EOFError, KeyError, OverflowError ...
    except Exception as error:
        raise DamagedPickle(str(error) or type(error).__name__) from error


def _require_few(content: Any, most: int) -> None:
    """Refuse more values than ``most`` in containers, one that is in several others counted in each."""
    level = [[content]]
    while level:
        most -= sum(map(len, level))
        if most < 0:
            raise RefusedPickle("lists that are many times the same one")
        parts = (each.values() if isinstance(each, dict) else each for each in level)
        # Most lists have numbers alone, which need not be looked at one by one.
        nested = (part for part in parts if not _CONTAINERS.isdisjoint(map(type, part)))
        level = [each for part in nested for each in part if type(each) in _CONTAINERS]


class _Type:
    """Stands for numpy.dtype, which believes the file that it has no objects, whose addresses then are bytes of it."""

    def __init__(self, text: str, *_: object) -> None:
        if not _SIMPLE.fullmatch(text):
            raise RefusedPickle(f"the type {text}")
        self.plain = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.plain = self.plain.newbyteorder(state[1])


class _Array(np.ndarray[Any, Any]):
    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, kind, is_fortran, raw = state
        if (kind.plain.hasobject and not isinstance(raw, list)) or math.prod(shape) > len(raw):
            raise RefusedPickle("an array without its content")
        super().__setstate__((version, shape, kind.plain, is_fortran, raw))

    def __reduce__(self) -> Any:
        # Pickled again, as for a worker process, it is an ordinary array.
        return np.asarray(self).__reduce__()


def _scalar(kind: _Type, raw: bytes) -> Any:
    return np.frombuffer(raw, kind.plain, 1)[0]  # It refuses objects.


def _from_buffer(raw: bytes, kind: _Type, shape: tuple[int, ...], order: Any) -> Array:
    return np.frombuffer(raw, kind.plain).reshape(shape, order=order)


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise RefusedPickle(f"text in {encoding}")
    return text.encode("latin-1")


_STANDS_FOR: Mapping[str, Any] = {
    "numpy.dtype": _Type,
    "numpy.ndarray": None,
    "numpy.multiarray._reconstruct": lambda *_: _Array((0,), "b"),
    "numpy.multiarray.scalar": _scalar,
    "numpy.numeric._frombuffer": _from_buffer,
    # Protocol 2 writes bytes as text; the numbers inside NumPy objects arrive this way.
    "_codecs.encode": _encode,
}
"""Our own functions for the names that pickles may have; NumPy 1 writes numpy.core, NumPy 2 numpy._core."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        key = re.sub(r"^numpy\._?core\.", "numpy.", f"{module}.{name}")
        if key not in _STANDS_FOR:
            raise RefusedPickle(f"{module}.{name}")
        return _STANDS_FOR[key]

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedPickle("an object outside the file")
