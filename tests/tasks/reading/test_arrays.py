"""Arrays in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.arrays import first_not_finite
from tests.tasks.files import equal, rows, save_npz
from tests.tasks.toys import load


@pytest.mark.parametrize("first", ["training", "test"])
def test_a_folder_of_arrays_is_read_from_the_disk(tmp_path: Path, first: str) -> None:
    """Nothing is copied where the training samples come first, and the samples are the same in any order."""
    is_test = np.arange(10) >= 8 if first == "training" else np.arange(10) < 2
    x = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    arrays = {"x": x, "y": np.arange(10) % 3, "is_test": is_test, "group": np.arange(10) % 2}
    (tmp_path / "own").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "own" / f"{name}.npy", array)
    mapped = load("npz", path=tmp_path / "own")
    assert equal(mapped, load("npz", path=save_npz(tmp_path / "own.npz", **arrays)))
    assert mapped.train_x.tolist() == x[~is_test].tolist()
    on_disk = isinstance(mapped.train_x.base, np.memmap)
    assert on_disk == (first == "training")
    mapped.train_x[0] = -1
    assert np.load(tmp_path / "own" / "x.npy").tolist() == x.tolist(), "the file stays as it is"


def test_a_folder_of_arrays_that_lacks_some_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file x\.npy, y\.npy"):
        load("npz", path=tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    (tmp_path / "y.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:90])
    with pytest.raises(UserError, match=r"y\.npy.*damaged"):
        load("npz", path=tmp_path)
    np.save(tmp_path / "y.npy", np.array([{}] * 4), allow_pickle=True)
    with pytest.raises(UserError, match=r"y\.npy: y has dtype object.*\n.*y\.astype\(int\)"):
        load("npz", path=tmp_path)


def test_all_of_a_large_array_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.tasks.reading.arrays._BLOCK", 6)
    x = rows(20)
    assert first_not_finite(x) is None
    assert first_not_finite(x.astype(np.uint8)) is None
    for at in (0, 2, 3, 19):
        assert first_not_finite(rows(20, wrong=np.inf, at=at)) == at
