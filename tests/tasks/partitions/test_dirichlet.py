"""The Dirichlet partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.tasks.partition import partition_table
from tests.tasks.partitions.counting import rows_of
from tests.tasks.toys import split, toy_dataset


@given(
    samples=st.integers(20, 300),
    clients=st.integers(1, 20),
    alpha=st.sampled_from([1e-3, 0.05, 1.0, 1e5]),
    rule=st.sampled_from(["client", "class", "balanced"]),
    seed=st.integers(0, 50),
)
def test_dirichlet_deals_everything_at_any_concentration(
    samples: int, clients: int, alpha: float, rule: str, seed: int
) -> None:
    dataset = toy_dataset(samples=samples, classes=7)
    partition = split(dataset, "dirichlet", seed, clients=clients, alpha=alpha, rule=rule)
    assert np.array_equal(rows_of(partition), np.arange(samples))
    assert partition.samples.min() >= 1


@pytest.mark.parametrize("rule", ["client", "class", "balanced"])
def test_dirichlet_concentration_decides_the_skew(rule: str) -> None:
    dataset = toy_dataset(samples=5000)

    def largest_share(alpha: float) -> float:
        table = partition_table(
            dataset, split(dataset, "dirichlet", clients=20, alpha=alpha, rule=rule)
        )
        return float((table.max(axis=1) / table.sum(axis=1)).mean())

    # A flat mix of ten labels has 0.1, and drawing adds a little; the largest of ten Dirichlet(0.1)
    # parts is 0.66 on average.
    assert largest_share(1e4) < 0.16
    assert largest_share(0.1) > 0.45


def test_balanced_dirichlet_gives_equal_sizes_and_others_do_not() -> None:
    dataset = toy_dataset(samples=1003)
    balanced = split(dataset, "dirichlet", clients=20, alpha=0.1, rule="balanced").samples
    assert balanced.max() - balanced.min() <= 1
    unequal = split(dataset, "dirichlet", clients=20, alpha=0.1, rule="client").samples
    assert unequal.max() - unequal.min() > 10
