"""Synthetic(alpha, beta)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tasks.files import equal
from tests.tasks.toys import load


def test_synthetic_follows_its_law() -> None:
    dataset = load("synthetic", alpha=0.5, beta=0.5, devices=20)
    assert dataset.input_shape == (60,)
    assert dataset.train_groups is not None
    sizes = np.bincount(dataset.train_groups)
    assert len(sizes) == 20
    assert sizes.min() >= 45, "50 samples or more, a tenth set aside"
    # Variance of feature j around its device's mean is j ^ -1.2.
    largest = int(np.argmax(sizes))
    group_x = dataset.train_x[dataset.train_groups == largest]
    assert group_x.var(axis=0)[[0, 9, 59]] == pytest.approx(np.array([1, 10, 60]) ** -1.2, rel=0.5)
    assert equal(dataset, load("synthetic", alpha=0.5, beta=0.5, devices=20))
    assert not equal(dataset, load("synthetic", alpha=0.5, beta=0.5, devices=20, seed=1))


def test_alpha_and_beta_set_how_much_the_devices_differ() -> None:
    def spread_of_means(beta: float) -> float:
        dataset = load("synthetic", alpha=0, beta=beta, devices=40)
        assert dataset.train_groups is not None
        means = [dataset.train_x[dataset.train_groups == device].mean() for device in range(40)]
        return float(np.std(means))

    assert spread_of_means(0) < 0.3
    assert spread_of_means(4) == pytest.approx(4, rel=0.4)
    shared = load("synthetic", iid=True, devices=40)
    means = [shared.train_x[shared.train_groups == device].mean() for device in range(40)]
    assert np.std(means) < 0.05
