"""Image data sets in IDX files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.images import MNIST_FILES, promised_shape, read_idx
from tests.tasks.files import idx, idx_arrays
from tests.tasks.toys import load


def test_compressed_images_are_read_when_they_are_used(
    idx_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def counted(path: Path, dimensions: int) -> np.ndarray:
        reads.append(path.name)
        return read_idx(path, dimensions)

    monkeypatch.setattr("fedsim.tasks.reading.images.read_idx", counted)
    dataset = load("mnist", root=idx_folder)
    assert reads == [f"{MNIST_FILES[1]}.gz", f"{MNIST_FILES[3]}.gz"], "the labels alone"
    assert dataset.input_shape == (1, 28, 28)
    assert np.array_equal(dataset.train_x[:, 0], idx_arrays()[0])
    assert reads[2:] == [f"{MNIST_FILES[0]}.gz"]


def test_damage_behind_a_right_header_is_noticed_when_images_are_used(idx_folder: Path) -> None:
    path = idx_folder / f"{MNIST_FILES[0]}.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    dataset = load("mnist", root=idx_folder)
    with pytest.raises(UserError, match="damaged"):
        _ = dataset.train_x


def test_a_promised_shape_agrees_with_the_size_at_the_end(tmp_path: Path) -> None:
    array = np.zeros((3, 4, 5))
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx(array)))
    assert promised_shape(path, 3) == (3, 4, 5)
    assert promised_shape(path, 1) is None, "other dimensions"
    path.write_bytes(gzip.compress(idx(array)[:-1]))
    assert promised_shape(path, 3) is None, "cut off before it was compressed"
    # Two members after one another are a valid .gz file whose last size says nothing of the whole.
    whole = idx(array)
    path.write_bytes(gzip.compress(whole[:20]) + gzip.compress(whole[20:]))
    assert promised_shape(path, 3) is None
    assert np.array_equal(read_idx(path, 3), array)
    (tmp_path / "images").write_bytes(whole)
    assert promised_shape(tmp_path / "images", 3) is None, "mapped, not read, as it is"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-40], "damaged"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "according to its header"),
        (
            lambda content: gzip.compress(b"\0\0\x0d\x03" + b"\0" * 12),
            "not an IDX file of bytes with 3",
        ),
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
