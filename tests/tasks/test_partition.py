"""What partitions share: clients' own test samples, and rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.tasks.partition import apportion, partition_table
from tests.tasks.toys import own_test_rows, split, toy_dataset, train_rows


def test_split_sets_a_share_aside() -> None:
    dataset = toy_dataset(samples=600)
    whole = split(dataset, "dirichlet", clients=30, alpha=0.2)
    partition = split(dataset, "dirichlet", clients=30, alpha=0.2, test="split", test_share=0.25)
    assert partition.test_source == "train"
    for client in range(30):
        train, test = train_rows(partition, client), own_test_rows(partition, client)
        assert sorted([*train, *test]) == train_rows(whole, client).tolist()
        size = len(train_rows(whole, client))
        assert len(test) == (min(max(round(0.25 * size), 1), size - 1) if size > 1 else 0)
        assert len(train) >= 1


def test_same_distribution_deals_the_shared_test_set_by_label() -> None:
    dataset = toy_dataset(samples=4000, tests=1000)
    partition = split(dataset, "shards", clients=20, test="same_distribution")
    assert partition.test_source == "test"
    assert partition.test_rows is not None
    assert np.array_equal(np.sort(partition.test_rows), np.arange(1000)), "each used once"
    train = partition_table(dataset, partition)
    for client in range(20):
        test = np.bincount(dataset.test_y[own_test_rows(partition, client)], minlength=10)
        assert np.abs(test - train[client] / 4).max() <= 1


def test_same_distribution_follows_natural_groups() -> None:
    dataset = toy_dataset(groups=9)
    partition = split(dataset, "natural", clients=5, test="same_distribution")
    assert dataset.test_groups is not None
    for client, name in enumerate(partition.client_names):
        group = dataset.group_names.index(name)
        assert (
            own_test_rows(partition, client).tolist()
            == np.flatnonzero(dataset.test_groups == group).tolist()
        )


@given(st.integers(0, 1000), st.lists(st.floats(1e-300, 1e3), min_size=1, max_size=30))
def test_apportioned_numbers_add_up_and_are_within_one_of_their_share(
    total: int, weights: list[float]
) -> None:
    counts = apportion(total, weights)
    assert counts.sum() == total
    exact = total * np.array(weights) / np.sum(weights)
    assert (np.abs(counts - exact) < 1 + 1e-6).all()


def test_largest_remainders_by_hand() -> None:
    assert apportion(10, [1, 1, 1]).tolist() == [4, 3, 3]
    assert apportion(7, [0.5, 0.2, 0.3]).tolist() == [4, 1, 2]
