"""A user's own arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.tasks.files import equal, rows, save_npz
from tests.tasks.toys import load


def test_npz_arrays_become_a_data_set(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float64).reshape(10, 4)
    path = save_npz(
        tmp_path / "own.npz",
        x=x,
        y=np.arange(10) % 3,
        group=np.array(["b", "a"] * 5),
        is_test=np.arange(10) >= 8,
    )
    dataset = load("npz", path=path)
    assert dataset.name == "own"
    assert dataset.train_x.dtype == np.float32
    assert np.array_equal(dataset.train_x, x[:8])
    assert dataset.test_y.tolist() == [2, 0]
    assert dataset.group_names == ("a", "b")
    assert dataset.train_groups is not None
    assert dataset.train_groups.tolist() == [1, 0] * 4
    assert dataset.kind == "classification"


def test_npz_without_a_split_is_split_by_its_seed(tmp_path: Path) -> None:
    path = save_npz(
        tmp_path / "own.npz", x=np.zeros((100, 2, 3, 3), dtype=np.uint8), y=np.arange(100) % 2
    )
    dataset = load("npz", path=path, test_share=0.3)
    assert (len(dataset.train_y), len(dataset.test_y)) == (70, 30)
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert dataset.kind == "binary"
    assert equal(dataset, load("npz", path=path, test_share=0.3))
    other = load("npz", path=path, test_share=0.3, seed=1)
    assert not np.array_equal(other.train_y, dataset.train_y)


@pytest.mark.parametrize("folder", [False, True])
def test_labels_of_text_objects_are_read(tmp_path: Path, folder: bool) -> None:
    """As pandas holds text; other objects are refused without being unpickled."""
    names = np.array(["cat", "dog", "cat", "bird"] * 5, dtype=object)
    arrays = {"x": np.zeros((20, 2)), "y": names}
    path = tmp_path if folder else save_npz(tmp_path / "own.npz", **arrays)
    for name, array in arrays.items() if folder else ():
        np.save(path / f"{name}.npy", array, allow_pickle=True)
    dataset = load("npz", path=path)
    assert dataset.class_names == ("bird", "cat", "dog")
    assert len(dataset.train_y) + len(dataset.test_y) == 20
    assert {dataset.class_names[label] for label in dataset.train_y} <= set(names)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2))}, "no array y"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2, dtype=int)}, "differ in length"),
        ({"x": np.zeros(3), "y": np.zeros(3, dtype=int)}, "x must be numbers"),
        ({"x": np.zeros((3, 2)), "y": np.array([0.5, 1, 2])}, "which are not labels"),
        ({"x": np.zeros((3, 2)), "y": np.ones((3, 2), int)}, "which are not labels"),
        ({"x": np.array([["a"]]), "y": np.zeros(1, dtype=int)}, "x must be numbers"),
        ({"x": np.full((9, 2), np.nan), "y": np.arange(9) % 2}, "sample 0 is not finite"),
        ({"x": rows(9, wrong=1e300, at=7), "y": np.arange(9)}, "x: sample 7 is not finite"),
        ({"x": np.zeros((9, 2)), "y": np.full(9, -1)}, "labels run from -1"),
        ({"x": np.zeros((9, 2)), "y": np.array([3_000_000_000, *range(8)])}, "to 3000000000; .* 9"),
        ({"x": np.zeros((9, 2)), "y": np.ones(9, dtype=int)}, "only one class, 1"),
        ({"x": np.zeros((9, 0)), "y": np.arange(9) % 2}, "no training samples"),
        ({"x": rows(9), "y": np.arange(9) % 2, "is_test": np.zeros((9, 2))}, "is_test has 2 dim"),
        (
            {"x": rows(9), "y": np.arange(9) % 2, "is_test": np.full(9, 2)},
            "is_test contains values other",
        ),
        (
            {"x": rows(9), "y": np.arange(9) % 2, "is_test": np.full(9, "no")},
            "is_test contains values other",
        ),
        ({"x": rows(9), "y": np.arange(9) % 2, "group": np.zeros((9, 2))}, "group has 2 dim"),
        ({"x": rows(9), "y": np.arange(9).astype(object)}, "y has dtype object"),
    ],
)
def test_npz_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load("npz", path=save_npz(tmp_path / "own.npz", **arrays))


def test_labels_from_1_are_doubted(tmp_path: Path) -> None:
    arrays = {"x": rows(20), "y": np.arange(20) % 3}
    assert not load("npz", path=save_npz(tmp_path / "own.npz", **arrays)).doubts()
    arrays["y"] += 1
    (doubt,) = load("npz", path=save_npz(tmp_path / "own.npz", **arrays)).doubts()
    assert "class 0 of data set own has no samples" in doubt.message


def test_a_damaged_or_missing_npz_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    with pytest.raises(UserError, match=r"x\.npy.*not an \.npz archive"):
        load("npz", path=tmp_path / "x.npy")
    path = save_npz(tmp_path / "own.npz", x=np.zeros((100, 20)), y=np.zeros(100, dtype=int))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match=r"own\.npz.*damaged"):
        load("npz", path=path)
    with pytest.raises(UserError, match="no such file"):
        load("npz", path=tmp_path / "nowhere.npz")


def test_tokens_stay_integers(tmp_path: Path) -> None:
    """Codes of more than 2^24 would lose digits in float32."""
    x = np.array([[1, 2**24 + 1], [0, 3], [4, 5], [6, 7]])
    path = save_npz(tmp_path / "own.npz", x=x, y=np.array([0, 1, 2, 0]), is_test=np.arange(4) > 2)
    dataset = load("npz", path=path, tokens=True)
    assert dataset.tokens
    assert np.array_equal(dataset.train_x, x[:3])
    assert dataset.vocabulary == 2**24 + 2
    assert load("npz", path=path).vocabulary is None


@pytest.mark.parametrize(("x", "message"), [([[0.5]], "float64"), ([[-1]], "the code -1")])
def test_tokens_that_are_not_codes_are_refused(
    tmp_path: Path, x: list[list[float]], message: str
) -> None:
    path = save_npz(tmp_path / "own.npz", x=np.array(x * 10), y=np.arange(10) % 3)
    with pytest.raises(UserError, match=message):
        load("npz", path=path, tokens=True)


def test_quantities(tmp_path: Path) -> None:
    y = np.array([0.5, -1.5, 2.0, 7.25, 3.0])
    np.savez(tmp_path / "own.npz", x=np.ones((5, 2)), y=y)
    loaded = load("npz", path=tmp_path / "own.npz", target_kind="quantity")
    assert loaded.kind == "regression"
    assert sorted([*loaded.train_y, *loaded.test_y]) == sorted(y)
    with pytest.raises(UserError, match="float64") as refusal:
        load("npz", path=tmp_path / "own.npz")
    assert "target_kind: quantity" in str(refusal.value.hint)
    y[2] = np.nan
    np.savez(tmp_path / "own.npz", x=np.ones((5, 2)), y=y)
    with pytest.raises(UserError, match="must be finite"):
        load("npz", path=tmp_path / "own.npz", target_kind="quantity")
