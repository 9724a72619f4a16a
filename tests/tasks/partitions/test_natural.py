"""The natural partition."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.tasks.toys import split, toy_dataset, train_rows


def test_natural_clients_are_the_groups() -> None:
    dataset = toy_dataset(groups=7)
    partition = split(dataset, "natural")
    assert partition.client_names == dataset.group_names
    assert dataset.train_groups is not None
    for client in range(7):
        assert (dataset.train_groups[train_rows(partition, client)] == client).all()
    assert len(partition.train_rows) == 600


def test_natural_can_take_some_groups_of_enough_samples() -> None:
    dataset = toy_dataset(samples=100, groups=20)
    counts = np.bincount(dataset.train_groups, minlength=20)
    least = int(np.median(counts))
    partition = split(dataset, "natural", clients=4, min_samples=least)
    assert partition.clients == 4
    assert (partition.samples >= least).all()
    assert partition.samples.tolist() == [
        counts[dataset.group_names.index(name)] for name in partition.client_names
    ]
    assert split(dataset, "natural", 1, clients=4).client_names != partition.client_names
    with pytest.raises(UserError, match="groups of 1 or more training samples, not 21"):
        split(dataset, "natural", clients=21)
    with pytest.raises(UserError, match="has 0 groups of 1,000 or more"):
        split(dataset, "natural", min_samples=1000)


def test_natural_needs_groups() -> None:
    with pytest.raises(UserError, match="toy has no natural groups"):
        split(toy_dataset(), "natural")
