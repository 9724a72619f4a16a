"""The class partition."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from tests.tasks.partitions.counting import labels_per_client
from tests.tasks.toys import split, toy_dataset


@pytest.mark.parametrize(("clients", "low", "high"), [(5, 5, 6), (10, 3, 5), (20, 3, 5), (3, 6, 8)])
def test_class_partition_uses_the_papers_numbers_of_classes(
    clients: int, low: int, high: int
) -> None:
    dataset = toy_dataset(samples=5000)
    held = np.concatenate(
        [
            labels_per_client(dataset, split(dataset, "class_partition", seed, clients=clients))
            for seed in range(8)
        ]
    )
    assert held.min() == low
    assert held.max() == high


def test_class_partition_shares_follow_a_normal_distribution() -> None:
    dataset = toy_dataset(samples=20000, classes=1)
    partition = split(dataset, "class_partition", clients=400, classes_min=1, classes_max=1)
    relative = partition.samples / 50
    assert relative.std() == pytest.approx(0.3, abs=0.04)


def test_class_partition_refuses_what_cannot_be() -> None:
    with pytest.raises(UserError, match="do not fit the 10 classes"):
        split(toy_dataset(), "class_partition", clients=2, classes_min=1, classes_max=2)
    with pytest.raises(UserError, match="do not fit the 10 classes"):
        split(toy_dataset(), "class_partition", clients=2, classes_min=11, classes_max=12)
    with pytest.raises(ValueError, match="above classes_max"):
        CATALOG.parts("partition")["class_partition"].Params(
            clients=2, classes_min=3, classes_max=2
        )
    with pytest.raises(ValueError, match="both classes_min and classes_max"):
        CATALOG.parts("partition")["class_partition"].Params(clients=2, classes_min=3)
