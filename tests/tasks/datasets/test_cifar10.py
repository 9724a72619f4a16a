"""CIFAR-10."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.datasets import cifar10
from tests.tasks.toys import load


def test_cifar_batches_are_read_in_the_asked_order(cifar_folder: Path) -> None:
    dataset = load("cifar10", root=cifar_folder, batches=[5, 1])
    assert dataset.train_y.tolist() == [5] * 6 + [1] * 6
    assert dataset.input_shape == (3, 32, 32)
    assert dataset.train_x[0, 0, 0, :3].tolist() == [5, 6, 7]
    assert dataset.train_x[0, 1, 0, 0] == (1024 + 5) % 256
    assert dataset.scale is not None
    assert dataset.scale.shape == (3, 1, 1)


def test_batches_in_the_data_folder_are_named_if_the_others_cannot_be_downloaded(
    cifar_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "datasets").mkdir()
    cifar_folder.rename(tmp_path / "datasets" / "cifar10")
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path))
    nowhere = dataclasses.replace(cifar10._ARCHIVE, urls=("http://127.0.0.1:9/all.tar.gz",))
    monkeypatch.setattr(cifar10, "_ARCHIVE", nowhere)
    assert len(load("cifar10", batches=[2]).train_y) == 6
    with pytest.raises(UserError, match="cannot download") as caught:
        load("cifar10")
    assert "batches: [1, 2, 5]" in str(caught.value)


@pytest.mark.real_data
def test_real_cifar_classes(real: Path) -> None:
    dataset = load("cifar10", batches=[1])
    assert dataset.input_shape == (3, 32, 32)
    assert len(dataset.test_y) == 10000
    assert np.bincount(dataset.train_y[:10000]).tolist() == [
        1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981,
    ]  # fmt: skip
