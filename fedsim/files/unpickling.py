"""Pickles of plain data, read without calling anything else that the file names.

A pickle can name any function of any module and have it called. Traces and data sets from others need little:
numbers, text, lists, dictionaries, NumPy scalars and NumPy arrays. Every other name is refused.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

# NumPy 1 writes numpy.core, NumPy 2 numpy._core.
_ALLOWED = {
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    # Protocol 2 writes bytes as text; the numbers inside NumPy objects arrive this way.
    ("_codecs", "encode"),
}
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
        content = _Unpickler(io.BytesIO(data), encoding=encoding).load()
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


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "numpy.core.multiarray":
            module = "numpy._core.multiarray"
        if (module, name) not in _ALLOWED:
            raise RefusedPickle(f"{module}.{name}")
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedPickle("an object outside the file")
