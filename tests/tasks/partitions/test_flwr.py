"""Partitions by Flower's partitioners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Partition
from tests.tasks.partitions.counting import rows_of
from tests.tasks.toys import split, toy_dataset

pytest.importorskip("flwr_datasets.partitioner", reason="needs the extra flower")


def flwr(dataset: Dataset, partitioner: str, **arguments: Any) -> Partition:
    return split(dataset, "flwr", partitioner=partitioner, arguments=arguments)


@pytest.mark.parametrize(
    ("partitioner", "arguments"),
    [
        ("IidPartitioner", {}),
        ("DirichletPartitioner", {"alpha": 0.5}),
        ("PathologicalPartitioner", {"num_classes_per_partition": 3}),
    ],
)
def test_every_sample_belongs_to_one_client(partitioner: str, arguments: dict[str, Any]) -> None:
    dataset = toy_dataset()
    first, second = (flwr(dataset, partitioner, num_partitions=7, **arguments) for _ in range(2))
    assert first.clients == 7
    assert np.array_equal(rows_of(first), np.arange(600))
    assert np.array_equal(first.train_rows, second.train_rows)


def test_a_natural_partition_has_names() -> None:
    dataset = toy_dataset(groups=5)
    partition = flwr(dataset, "NaturalIdPartitioner", partition_by="group")
    own = split(dataset, "natural")
    sizes = dict(zip(own.client_names, own.samples, strict=True))
    assert dict(zip(partition.client_names, partition.samples, strict=True)) == sizes


@pytest.mark.parametrize(
    ("partitioner", "message", "hint"),
    [
        ("DirichletPartitoner", "no partitioner", "DirichletPartitioner"),
        ("DirichletPartitioner", "alpha", "num_partitions"),
    ],
)
def test_mistakes_name_partitioners_and_arguments(
    partitioner: str, message: str, hint: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        flwr(toy_dataset(), partitioner, num_partitions=3)
    assert hint in str(refusal.value.hint)
