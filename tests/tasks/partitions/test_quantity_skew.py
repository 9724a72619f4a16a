"""The quantity-skew partition."""

from __future__ import annotations

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
