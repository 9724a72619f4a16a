"""CIFAR's python batches: pickles of numpy arrays, read with an allow-list so that nothing else can be executed."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.tasks.reading.files import damaged

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def _encode(text: str, encoding: str) -> bytes:
    """How newer Pythons write bytes in older pickles; only this one encoding."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes bytes as {encoding}")
    return text.encode("latin1")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        if name == "encode":
            return _encode
        if name == "_reconstruct":
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        return getattr(np, name)


def read_batch(content: bytes, path: Path) -> dict[str, Any]:
    """The dictionary of a batch; Python 2 text becomes text.

    Args:
        content: bytes of the pickle.
        path: where they come from, for messages.

    Raises:
        UserError: damaged, or it asks for anything but numpy arrays.
    """
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    # A damaged pickle may fail in the machine's own code with almost any error.
    except Exception as error:
        raise damaged(path, f"it is not a CIFAR batch ({error})") from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a CIFAR batch (not a dictionary)")
    return value
