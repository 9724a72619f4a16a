"""IDX files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.images import MNIST_FILES
from tests.tasks.files import idx
from tests.tasks.toys import load


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-40], "damaged"),
        (lambda content: b"not compressed", "damaged"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "according to its header"),
        (lambda content: gzip.compress(gzip.decompress(content) + b"x"), "according to its header"),
        (
            lambda content: gzip.compress(b"\0\0\x0d\x03" + b"\0" * 12),
            "not an IDX file of bytes with 3",
        ),
        (lambda content: gzip.compress(b"\0\0"), "not an IDX file"),
        (lambda content: gzip.compress(idx(np.zeros((29, 28, 28)))), "for 29 samples"),
    ],
)
def test_a_damaged_idx_file_is_named(idx_folder: Path, change: Any, message: str) -> None:
    path = idx_folder / f"{MNIST_FILES[0]}.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        load("mnist", root=idx_folder)
    assert caught.value.exit_code == 2
    assert path.name in str(caught.value) or "data set mnist" in str(caught.value)
