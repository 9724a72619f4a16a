"""Pickles of plain data, read without calling anything that the file names.

A pickle can name any function of any module and have it called. Traces and data sets from others need little:
numbers, text, lists, dictionaries, NumPy scalars and NumPy arrays of numbers. Those are rebuilt here by functions of
this module from states that it has checked; every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

_CODES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_DAMAGED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    MemoryError,
    RecursionError,
)


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
        return _Unpickler(io.BytesIO(data), encoding=encoding).load()
    except RefusedPickle:
        raise
    except _DAMAGED as error:
        raise DamagedPickle(str(error) or type(error).__name__) from error


class _Dtype:
    """Stand-in for ``numpy.dtype`` that holds a type of plain numbers."""

    def __init__(self, code: Any, _align: Any = False, _copy: Any = True) -> None:
        if not isinstance(code, str) or code not in _CODES:
            raise pickle.UnpicklingError(f"the NumPy type {code!r} is not a number")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("damaged NumPy type")
        self.code = state[1] + self.code


class _Array(np.ndarray[Any, Any]):
    """An array of plain numbers; restores itself only from a state that has been checked."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran_order, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | str):
            raise pickle.UnpicklingError("damaged NumPy array")
        raw = content.encode("latin1") if isinstance(content, str) else content
        plain = np.dtype(dtype.code)
        if math.prod(shape) * plain.itemsize != len(raw):
            raise pickle.UnpicklingError("damaged NumPy array")
        # NumPy accepts only a Python bool, contrary to its stubs.
        state = (1, shape, plain, bool(fortran_order), raw)
        super().__setstate__(state)


def _array(_class: Any, _shape: Any, _code: Any) -> _Array:
    return np.ndarray.__new__(_Array, (0,))


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
        raise pickle.UnpicklingError("damaged NumPy number")
    plain = np.dtype(dtype.code)
    if len(data) != plain.itemsize:
        raise pickle.UnpicklingError("damaged NumPy number")
    return np.frombuffer(data, dtype=plain)[0].item()


def _latin1(text: Any, encoding: Any) -> bytes:
    # Protocol 2 writes bytes as text; the numbers inside NumPy objects arrive this way.
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("damaged bytes")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise RefusedPickle(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedPickle("an object outside the file")
