"""The common work of speed comparisons."""

from __future__ import annotations

import numpy as np

from tests.tasks.toys import load


def test_the_common_work_is_a_hundred_clients_of_two_hundred_images() -> None:
    dataset = load("common_work", test_samples=50)
    assert dataset.train_x.shape == (20000, 1, 28, 28)
    assert dataset.train_x.dtype == np.float32
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [200] * 100
    assert dataset.classes == 10
