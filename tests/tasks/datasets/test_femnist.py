"""FEMNIST."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tasks.files import leaf
from tests.tasks.toys import load


def test_femnist_is_grouped_by_writer(tmp_path: Path) -> None:
    white, grey = [1.0] * 784, [128 / 255] * 784
    for part, second in (("train", "b"), ("test", "c")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "1.json").write_text(leaf({"a": ([white, grey], [3, 61])}))
        (tmp_path / part / "2.json").write_text(leaf({second: ([grey], [7])}))
    dataset = load("femnist", root=tmp_path)
    assert dataset.group_names == ("a", "b", "c")
    assert dataset.train_groups is not None
    assert dataset.test_groups is not None
    assert dataset.train_groups.tolist() == [0, 0, 1]
    assert dataset.test_groups.tolist() == [0, 0, 2]
    assert dataset.train_y.tolist() == [3, 61, 7]
    assert dataset.train_x[:, 0, 0, 0].tolist() == [255, 128, 128]
    assert dataset.class_names[61] == "z"


@pytest.mark.real_data
def test_real_femnist_writers(real: Path) -> None:
    dataset = load("femnist", root=real / "femnist_leaf_sample")
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [11, 16, 17, 18, 16]
    assert len(dataset.test_y) == 89
