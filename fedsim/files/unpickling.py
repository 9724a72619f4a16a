"""Pickles of plain data, read without calling anything else that the file names.

A pickle can name any function of any module and have it called. Traces and data sets from others need little:
numbers, text, lists, dictionaries, NumPy scalars and NumPy arrays. Every other name is refused.
"""

from __future__ import annotations

import io
import math
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
        if _values(content, {}) > len(data) + _MOST_SHARED:
            raise RefusedPickle("lists that are many times the same one")
        return content
    except RefusedPickle:
        raise
    # The decoder fails on damaged data in many ways: EOFError, KeyError, OverflowError ...
    except Exception as error:
        raise DamagedPickle(str(error) or type(error).__name__) from error


def _values(container: Any, counted: dict[int, float]) -> float:
    """The values in a container, one that is in several others counted in each; infinite if it is in itself."""
    if id(container) not in counted:
        counted[id(container)] = math.inf
        parts = container.values() if isinstance(container, dict) else container
        if not isinstance(container, dict | list | tuple):
            parts = ()
        inner = sum(
            _values(each, counted) for each in parts if isinstance(each, dict | list | tuple)
        )
        counted[id(container)] = len(parts) + inner
    return counted[id(container)]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "numpy.core.multiarray":
            module = "numpy._core.multiarray"
        if (module, name) not in _ALLOWED:
            raise RefusedPickle(f"{module}.{name}")
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedPickle("an object outside the file")
