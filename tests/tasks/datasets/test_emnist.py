"""EMNIST."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tasks.files import idx
from tests.tasks.toys import load


@pytest.mark.parametrize(
    ("split", "first", "classes"), [("balanced", 0, 47), ("letters", 1, 26), ("byclass", 0, 62)]
)
def test_emnist_is_turned_upright(tmp_path: Path, split: str, first: int, classes: int) -> None:
    image = np.zeros((1, 28, 28))
    image[0, 3, 20] = 255
    for part in ("train", "test"):
        (tmp_path / f"emnist-{split}-{part}-images-idx3-ubyte").write_bytes(idx(image))
        labels = np.array([first + classes - 1])
        (tmp_path / f"emnist-{split}-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    dataset = load("emnist", root=tmp_path, split=split)
    assert dataset.classes == len(dataset.class_names) == classes
    assert dataset.train_y.tolist() == [classes - 1]
    assert dataset.train_x[0, 0, 20, 3] == 255
