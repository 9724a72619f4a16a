"""Pickles of numbers, text, lists and dicts; everything else is refused.

A pickle can name any function of any module and have it called. FedScale's traces need only numpy scalars beyond plain
containers, and even these are rebuilt here without calling numpy's own unpickling functions.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from fedsim.errors import UserError
from fedsim.traces.importers._files import SourceFile


class _Dtype:
    """Stand-in for ``numpy.dtype`` that holds plain numbers only."""

    def __init__(self, code: Any, _align: Any = False, _copy: Any = True) -> None:
        if not isinstance(code, str) or code not in _CODES:
            raise pickle.UnpicklingError(f"numpy type {code!r} is not a number")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("damaged numpy type")
        self.code = state[1] + self.code


_CODES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
        raise pickle.UnpicklingError("damaged numpy number")
    plain = np.dtype(dtype.code)
    if len(data) != plain.itemsize:
        raise pickle.UnpicklingError("damaged numpy number")
    return np.frombuffer(data, dtype=plain)[0].item()


def _latin1(text: Any, encoding: Any) -> bytes:
    # Protocol 2 writes bytes as text; the numbers inside a numpy scalar arrive this way.
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("damaged bytes")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _Refused(pickle.UnpicklingError):
    """The pickle names something that is not on the list."""


class _NumbersUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("an object outside the file")


def is_pickle(data: bytes) -> bool:
    """Whether ``data`` looks like a pickled container (any protocol) and not like text of ours."""
    return data[:1] == b"\x80" or data[:2] in (b"(d", b"}q", b"(l", b"]q")


def load_numbers(source: SourceFile) -> Any:
    """Content of a pickle of numbers, text, lists and dicts.

    Raises:
        UserError: the pickle names any other class or function, or is damaged. Nothing that it names was called.
    """
    try:
        return _NumbersUnpickler(io.BytesIO(source.data)).load()
    except _Refused as error:
        raise UserError(
            f"the pickle asks for {error}, which is not plain data; it was not loaded",
            where=source.where,
            hint="a pickle can run any program; load it where you trust it and save it as JSON",
        ) from error
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        MemoryError,
        UnicodeDecodeError,
    ) as error:
        raise UserError(
            f"is not a whole pickle: {error}",
            where=source.where,
            hint="copy the file again, or give the JSON form",
        ) from error
