"""CIFAR-100."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedsim.errors import UserError
from tests.tasks.files import batch
from tests.tasks.toys import load


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path) -> None:
    labels = {"fine_labels": [99, 3, 4, 5, 6, 7], "coarse_labels": [19, 1, 2, 3, 4, 5]}
    for part in ("train", "test"):
        (tmp_path / part).write_bytes(batch(0, **labels))
    names = {
        "fine_label_names": [f"f{number}" for number in range(100)],
        "coarse_label_names": [f"c{number}" for number in range(20)],
    }
    (tmp_path / "meta").write_bytes(pickle.dumps(names, protocol=2))
    fine, coarse = (load("cifar100", root=tmp_path, labels=kind) for kind in ("fine", "coarse"))
    assert (fine.classes, fine.train_y[0], fine.class_names[99]) == (100, 99, "f99")
    assert (coarse.classes, coarse.train_y[0], coarse.class_names[19]) == (20, 19, "c19")
    (tmp_path / "train").write_bytes(batch(0, fine_labels=["a"] * 6))
    with pytest.raises(UserError, match=r"train: .*images of 3 x 32 x 32 bytes and one entry of"):
        load("cifar100", root=tmp_path)
    for wrong in ({}, {"fine_label_names": 100}, {"fine_label_names": ["f0"]}):
        (tmp_path / "meta").write_bytes(pickle.dumps(wrong, protocol=2))
        with pytest.raises(UserError, match=r"meta: .*does not name 100 fine labels"):
            load("cifar100", root=tmp_path)
