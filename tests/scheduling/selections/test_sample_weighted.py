"""Draws in proportion to the number of samples."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scheduling.drawing import by_round, draws, frequency


def test_sample_weighted_without_replacement() -> None:
    samples = [1, 2, 3, 4]
    book = draws({"name": "sample_weighted", "cohort": 1}, clients=4, rounds=4000, samples=samples)
    assert frequency(book, 4, 4000) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.025)
    pairs = draws({"name": "sample_weighted", "cohort": 2}, clients=4, rounds=200, samples=samples)
    assert all(len(set(clients)) == 2 for clients in by_round(pairs))


def test_sample_weighted_with_replacement() -> None:
    samples, rounds, k = [1, 2, 3, 4], 1000, 3
    book = draws(
        {"name": "sample_weighted", "cohort": k, "replacement": True},
        clients=4,
        rounds=rounds,
        samples=samples,
    )
    drawn = np.zeros(4)
    for aggregate in book.aggregates:
        for item in aggregate.contributions:
            drawn[item.client] += item.multiplicity
    assert drawn.sum() == k * rounds
    assert drawn / drawn.sum() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.025)
