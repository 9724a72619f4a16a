"""UCI HAR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.tasks.files import save_npz
from tests.tasks.toys import load


def test_uci_har_needs_arrays_that_fit(tmp_path: Path) -> None:
    arrays = {
        "x": np.arange(4 * 9 * 128).reshape(4, 9, 128).astype(np.float16) % 50,
        "y": np.array([0, 1, 2, 5], dtype=np.int8),
        "subject": np.array([0, 0, 1, 1], dtype=np.int8),
        "is_test": np.array([0, 1, 0, 1], dtype=np.int8),
    }
    save_npz(tmp_path / "har_inertial.npz", **arrays)
    dataset = load("uci_har", root=tmp_path)
    assert dataset.train_x.dtype == np.float32
    assert dataset.group_names == ("subject 1", "subject 2")
    assert dataset.scale is not None
    assert dataset.shift is not None
    seen = dataset.train_x * dataset.scale + dataset.shift
    assert seen.mean(axis=(0, 2)) == pytest.approx(np.zeros(9), abs=1e-5)
    assert seen.std(axis=(0, 2)) == pytest.approx(np.ones(9), rel=1e-4)
    for wrong in (
        {"y": np.array([0, 1])},
        {"x": np.full((4, 9, 128), "a")},
    ):
        save_npz(tmp_path / "har_inertial.npz", **{**arrays, **wrong})
        with pytest.raises(UserError, match="differ in length or have unexpected types"):
            load("uci_har", root=tmp_path)
    for wrong in ({"is_test": np.ones(4, dtype=bool)}, {"subject": np.full(4, 10**9)}):
        save_npz(tmp_path / "har_inertial.npz", **{**arrays, **wrong})
        with pytest.raises(UserError, match="all windows are test samples, or subjects"):
            load("uci_har", root=tmp_path)
