"""The digits that ship with fedsim."""

from __future__ import annotations

import numpy as np

from tests.tasks.toys import load


def test_digits_are_scikit_learns_with_a_fixed_split() -> None:
    from sklearn.datasets import load_digits

    dataset = load("digits")
    assert (len(dataset.train_y), len(dataset.test_y)) == (1438, 359)
    theirs = load_digits()
    is_test = np.arange(len(theirs.target)) % 5 == 4
    for x, y, rows in (
        (dataset.train_x, dataset.train_y, ~is_test),
        (dataset.test_x, dataset.test_y, is_test),
    ):
        assert np.array_equal(x[:, 0], theirs.images[rows])
        assert np.array_equal(y, theirs.target[rows])
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert (dataset.train_x * dataset.scale).max() == 1.0
    assert np.bincount(dataset.train_y).min() > 120
