"""The Gaussian mixture."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tasks.toys import load


def test_the_gaussian_mixture_has_the_given_moments() -> None:
    dataset = load("gaussian_mixture", samples=20000, features=30, mean_std=0.45)
    means = np.stack(
        [dataset.train_x[dataset.train_y == label].mean(axis=0) for label in range(10)]
    )
    assert means.std() == pytest.approx(0.45, rel=0.1)
    assert (dataset.train_x - means[dataset.train_y]).std() == pytest.approx(1.0, rel=0.01)
    assert np.bincount(dataset.train_y).tolist() == [2000] * 10
    # Training and test samples come from the same means.
    other = np.stack([dataset.test_x[dataset.test_y == label].mean(axis=0) for label in range(10)])
    assert np.corrcoef(means.ravel(), other.ravel())[0, 1] > 0.9
