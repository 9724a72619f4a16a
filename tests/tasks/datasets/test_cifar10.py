"""CIFAR-10."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tasks.toys import load


def test_cifar_batches_are_read_in_the_asked_order(cifar_folder: Path) -> None:
    dataset = load("cifar10", root=cifar_folder, batches=[5, 1])
    assert dataset.train_y.tolist() == [5] * 6 + [1] * 6
    assert dataset.input_shape == (3, 32, 32)
    assert dataset.train_x[0, 0, 0, :3].tolist() == [5, 6, 7]
    assert dataset.train_x[0, 1, 0, 0] == (1024 + 5) % 256
    assert dataset.scale is not None
    assert dataset.scale.shape == (3, 1, 1)


@pytest.mark.real_data
def test_real_cifar_classes(real: Path) -> None:
    dataset = load("cifar10", batches=[1])
    assert dataset.input_shape == (3, 32, 32)
    assert len(dataset.test_y) == 10000
    assert np.bincount(dataset.train_y[:10000]).tolist() == [
        1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981,
    ]  # fmt: skip
