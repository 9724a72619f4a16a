"""The dual Dirichlet partition."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.randomness import Stream
from fedsim.tasks.partition import partition_table
from tests.tasks.toys import split, toy_dataset


def test_dual_dirichlet_follows_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    # FedCompass card, hand case: u = (3/4, 1/4), V = ((.8, .2), (.2, .8)), 1000 samples a class.
    drawn = iter([np.array([0.75, 0.25]), np.array([[0.8, 0.2], [0.2, 0.8]])])
    concentrations = []

    class Rigged:
        def dirichlet(self, concentration: np.ndarray, size: int | None = None) -> np.ndarray:
            concentrations.append(concentration.tolist())
            return next(drawn)

        def permutation(self, rows: np.ndarray) -> np.ndarray:
            return rows

    monkeypatch.setattr(Stream, "generator", lambda self, client=0, k=0: Rigged())
    dataset = toy_dataset(samples=2000, classes=2)
    table = partition_table(dataset, split(dataset, "dual_dirichlet", clients=2))
    assert table.tolist() == [[923, 429], [77, 571]]
    assert concentrations == [[1.0, 1.0], [0.25, 0.25]], "alpha1 = N, alpha2 = 0.5 over the classes"
