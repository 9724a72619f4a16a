"""Shifted logistic data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tasks.toys import load


def test_shifted_logistic_has_a_model_a_group() -> None:
    dataset = load("shifted_logistic", groups=4, samples=4000, features=6)
    assert dataset.kind == "binary"
    assert dataset.train_groups is not None
    assert np.square(dataset.train_x).sum(axis=1).mean() == pytest.approx(1, abs=0.35)
    # Least squares on one group's samples predicts that group's labels and not another's.
    weights = []
    for group in range(4):
        of_group = dataset.train_groups == group
        x = np.c_[dataset.train_x[of_group], np.ones(of_group.sum())]
        weights.append(np.linalg.lstsq(x, dataset.train_y[of_group] - 0.5, rcond=None)[0])
    cosines = [
        weights[a] @ weights[b] / np.linalg.norm(weights[a]) / np.linalg.norm(weights[b])
        for a in range(4)
        for b in range(a)
    ]
    assert max(cosines) < 0.9
