"""Arrays as people save them: names of pairs, axes of images, forms of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset
from tests.tasks.files import save_npz
from tests.tasks.toys import load

GRAY = np.arange(12 * 28 * 28, dtype=np.uint8).reshape(12, 28, 28)
LABELS = np.arange(12) % 3


def pairs(x: str, y: str, test_x: str, test_y: str, **more: Any) -> dict[str, Any]:
    return {x: GRAY[:8], y: LABELS[:8], test_x: GRAY[8:], test_y: LABELS[8:], **more}


@pytest.mark.parametrize(
    "arrays",
    [
        pairs("x_train", "y_train", "x_test", "y_test"),
        pairs("X_train", "y_train", "X_test", "y_test"),
        pairs("train_x", "train_y", "test_x", "test_y"),
        pairs("train_images", "train_labels", "test_images", "test_labels"),
        pairs("train_data", "train_labels", "test_data", "test_labels"),
        # MedMNIST: labels (n, 1), and a validation pair, which is not used.
        pairs("train_images", "train_labels", "test_images", "test_labels")
        | {"train_labels": LABELS[:8, None], "test_labels": LABELS[8:, None]}
        | {"val_images": GRAY[:2], "val_labels": LABELS[:2, None]},
    ],
)
def test_training_and_test_pairs(tmp_path: Path, arrays: dict[str, Any]) -> None:
    dataset = load("npz", path=save_npz(tmp_path / "mnist.npz", **arrays))
    assert dataset.train_x.shape == (8, 1, 28, 28)
    assert np.array_equal(dataset.train_x[:, 0], GRAY[:8])
    assert np.array_equal(dataset.test_x[:, 0], GRAY[8:])
    assert dataset.train_y.tolist() == LABELS[:8].tolist()
    assert dataset.test_y.tolist() == LABELS[8:].tolist()
    assert any("not used: val_images, val_labels" in note for note in dataset.notes) == (
        "val_images" in arrays
    )


def test_pairs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    arrays = pairs("x_train", "y_train", "x_test", "y_test")
    short = save_npz(tmp_path / "short.npz", **arrays | {"y_test": LABELS[:3]})
    with pytest.raises(UserError, match="differ in length"):
        load("npz", path=short)
    other = save_npz(tmp_path / "other.npz", **arrays | {"x_test": GRAY[8:, :14]})
    with pytest.raises(UserError, match="x_test has entries of shape"):
        load("npz", path=other)


def _load(tmp_path: Path, x: Any, y: Any = LABELS, **params: Any) -> Dataset:
    return load("npz", path=save_npz(tmp_path / "own.npz", x=x, y=y), test_share=0.01, **params)


@pytest.mark.parametrize(
    ("shape", "layout", "expected", "noted"),
    [
        ((28, 28), "auto", (1, 28, 28), True),
        ((28, 28), "channels_first", (28, 28), False),
        ((28, 28), "channels_last", (1, 28, 28), False),
        ((128, 9), "auto", (128, 9), False),
        ((32, 24, 3), "auto", (3, 32, 24), True),
        ((32, 24, 3), "channels_first", (32, 24, 3), False),
        ((8, 9, 8), "channels_last", (8, 8, 9), False),
        ((3, 32, 24), "auto", (3, 32, 24), False),
        ((3, 32, 3), "auto", (3, 32, 3), False),
        ((8, 9, 8), "auto", (8, 9, 8), False),
        ((7,), "auto", (7,), False),
    ],
)
def test_axes_of_images(
    tmp_path: Path, shape: tuple[int, ...], layout: str, expected: tuple[int, ...], noted: bool
) -> None:
    x = np.random.default_rng(0).integers(0, 255, (12, *shape), dtype=np.uint8)
    dataset = _load(tmp_path, x, layout=layout)
    assert dataset.input_shape == expected
    assert bool(dataset.notes) == noted
    assert [str(doubt.message) for doubt in dataset.doubts()] == [
        f"data set own: {note}" for note in dataset.notes
    ]
    channels_moved = len(shape) == 3 and expected != shape
    stored = x.transpose(0, 3, 1, 2) if channels_moved else x.reshape(12, *expected)
    assert np.array_equal(dataset.train_x, stored)


@pytest.mark.parametrize(
    ("y", "params", "classes"),
    [
        (LABELS.astype(np.float64), {}, ("0", "1", "2")),
        (np.eye(3)[LABELS], {}, ("0", "1", "2")),
        (np.eye(3, dtype=bool)[LABELS], {}, ("0", "1", "2")),
        (np.array(["ant", "bee", "cow"])[LABELS], {}, ("ant", "bee", "cow")),
        (np.array([b"ant", b"bee", b"cow"])[LABELS], {}, ("ant", "bee", "cow")),
        (LABELS + 1, {"labels_from": 1}, ("0", "1", "2")),
        (LABELS[:, None], {}, ("0", "1", "2")),
    ],
)
def test_forms_of_labels(
    tmp_path: Path, y: Any, params: dict[str, Any], classes: tuple[str, ...]
) -> None:
    dataset = _load(tmp_path, np.zeros((12, 2)), y, **params)
    assert dataset.train_y.tolist() == LABELS.tolist()
    assert dataset.class_names == classes


def test_labels_from_one_without_saying_so_are_a_doubt(tmp_path: Path) -> None:
    (doubt,) = _load(tmp_path, np.zeros((12, 2)), LABELS + 1).doubts()
    assert "class 0" in doubt.message
    assert "labels_from: 1" in (doubt.hint or "")
