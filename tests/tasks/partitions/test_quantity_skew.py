"""The quantity-skew partition."""

from __future__ import annotations

import pytest

from fedsim.tasks.partition import partition_table
from tests.tasks.toys import split, toy_dataset


def test_quantity_skew_keeps_the_mix_and_skews_the_sizes() -> None:
    dataset = toy_dataset(samples=20000)
    partition = split(dataset, "quantity_skew", clients=10, alpha=0.5)
    table = partition_table(dataset, partition)
    large = table[table.sum(axis=1) > 2000]
    assert len(large)
    assert (large / large.sum(axis=1, keepdims=True)).max() < 0.14
    # Dirichlet(1/2) over ten: standard deviation of a share is sqrt(0.1 * 0.9 / 6) = 0.122.
    assert 0.05 < (partition.samples / 20000).std() < 0.25
    even = split(dataset, "quantity_skew", clients=10, alpha=1e6).samples
    assert even.max() - even.min() < 30


@pytest.mark.parametrize("alpha", [1e-3, 1e-5])
def test_a_tiny_alpha_gives_one_client_nearly_everything(alpha: float) -> None:
    """NumPy's mean of the largest of five shares is 0.997 at 1e-3; gamma draws would underflow to equal shares."""
    dataset = toy_dataset(samples=1000)
    for seed in range(8):
        largest = split(dataset, "quantity_skew", clients=5, alpha=alpha, seed=seed).samples.max()
        assert largest > 900
