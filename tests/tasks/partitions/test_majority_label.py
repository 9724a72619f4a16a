"""The majority-label partition."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.partition import partition_table
from tests.tasks.partitions.counting import labels_per_client
from tests.tasks.toys import split, toy_dataset, train_rows


def test_majority_label_without_similarity_is_one_label_in_equal_parts() -> None:
    dataset = toy_dataset(samples=2400)
    partition = split(dataset, "majority_label", clients=24, similarity=0.0)
    table = partition_table(dataset, partition)
    owned = np.arange(24) * 10 // 24
    assert np.array_equal(table.argmax(axis=1), owned)
    assert (labels_per_client(dataset, partition) == 1).all()
    for label in range(10):
        sizes = table[owned == label, label]
        assert sizes.sum() == 240
        assert sizes.max() - sizes.min() <= 1


def test_majority_label_mixes_as_the_paper_does() -> None:
    # Card: N = 250, similarity 5%: about 4.5% of a client's samples are of other labels.
    dataset = toy_dataset(samples=60000, shape=(1,))
    table = partition_table(dataset, split(dataset, "majority_label", clients=250))
    assert 1 - table.max(axis=1).sum() / table.sum() == pytest.approx(0.045, abs=0.004)
    assert np.array_equal(table.argmax(axis=1), np.arange(250) // 25)
    assert table.sum(axis=1).min() >= 225


def test_majority_label_deals_to_the_smallest_owner() -> None:
    # By hand, two clients own label 0, one owns label 1, nothing is random.
    labels = np.array([0, 0, 1, 0, 0], dtype=np.int64)
    partition = split(
        toy_dataset(classes=2, labels=labels), "majority_label", clients=3, similarity=0.0
    )
    assert [train_rows(partition, client).tolist() for client in range(3)] == [[0, 3], [1, 4], [2]]


def test_majority_label_needs_a_client_a_label() -> None:
    with pytest.raises(UserError, match="cannot each own one of the 10 labels"):
        split(toy_dataset(), "majority_label", clients=9)
