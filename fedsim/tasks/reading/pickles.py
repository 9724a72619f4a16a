"""CIFAR's Python batches: pickles of a dictionary of NumPy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsim.tasks.reading.files import damaged
from fedsim.unpickling import DamagedPickle, RefusedPickle, load_plain


def read_batch(content: bytes, path: Path) -> dict[str, Any]:
    """The dictionary of a batch; Python 2 text becomes text.

    Args:
        content: bytes of the pickle.
        path: where they come from, for messages.

    Raises:
        UserError: damaged, or it names anything but NumPy arrays.
    """
    try:
        value = load_plain(content, encoding="latin1")
    except RefusedPickle as error:
        raise damaged(
            path, f"it is not a CIFAR batch (it names {error}, which is not allowed)"
        ) from error
    except DamagedPickle as error:
        raise damaged(path, f"it is not a CIFAR batch ({error})") from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a CIFAR batch (not a dictionary)")
    return value
