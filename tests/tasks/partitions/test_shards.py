"""The shard partition."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.partition import partition_table
from tests.tasks.partitions.counting import labels_per_client
from tests.tasks.toys import split, toy_dataset


def test_shards_are_those_of_lg_fedavg() -> None:
    # FedLGA card 5.4: N = 50, P = 2 on 10 classes: 10 shards of each class.
    dataset = toy_dataset(samples=6030)
    partition = split(dataset, "shards", clients=50)
    table = partition_table(dataset, partition)
    sizes = table[table > 0]
    # 603 samples a class in 10 shards: 3 of 61 and 7 of 60; a device may hold two shards of one class.
    assert set(sizes) <= {60, 61, 120, 121, 122}
    assert (sizes.clip(max=61) >= 60).all()
    assert table.sum(axis=0).tolist() == [603] * 10
    assert (labels_per_client(dataset, partition) <= 2).all()
    shards = np.rint(table / 60).astype(int)
    assert (shards.sum(axis=1) == 2).all()
    assert (shards.sum(axis=0) == 10).all()


def test_shards_that_do_not_divide_evenly_go_to_the_largest_classes() -> None:
    labels = np.repeat([0, 1, 2], [100, 300, 200]).astype(np.int64)
    dataset = toy_dataset(classes=3, labels=labels)
    table = partition_table(dataset, split(dataset, "shards", clients=5, classes_per_client=1))
    assert sorted((table > 0).sum(axis=0)) == [1, 2, 2]
    assert (table > 0).sum(axis=0)[0] == 1, "the smallest class has one shard"


def test_shards_refuse_what_cannot_be() -> None:
    with pytest.raises(UserError, match="cannot hold the 10 classes"):
        split(toy_dataset(), "shards", clients=4)
    with pytest.raises(UserError, match="shards need 61 samples of class 0"):
        split(toy_dataset(), "shards", clients=61, classes_per_client=10)
