"""All partitions: what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.partition import Partition, partition_table
from tests.tasks.partitions.counting import rows_of
from tests.tasks.toys import own_test_rows, split, toy_dataset, train_rows

COUNTED: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.3},
    "dual_dirichlet": {},
    "class_partition": {"classes_min": 3, "classes_max": 5},
    "shards": {},
    "quantity_skew": {},
    "majority_label": {},
}


ALL_SAMPLES_DEALT = tuple(COUNTED)


def test_every_partition_is_tested_here() -> None:
    assert set(CATALOG.parts("partition")) == {*COUNTED, "natural", "file", "flwr"}


@pytest.mark.parametrize("name", ALL_SAMPLES_DEALT)
def test_every_sample_is_dealt_once_and_nobody_goes_without(name: str) -> None:
    dataset = toy_dataset(samples=997)
    partition = split(dataset, name, clients=10, **COUNTED[name])
    assert np.array_equal(rows_of(partition), np.arange(997))
    assert partition.clients == 10
    assert partition.samples.min() >= 1
    assert partition.train_offsets.dtype == partition.train_rows.dtype == np.int64
    for client in range(10):
        assert (np.diff(train_rows(partition, client)) > 0).all(), "rows ascend"
    assert partition_table(dataset, partition).sum() == 997
    assert own_test_rows(partition, 0).size == 0


@pytest.mark.parametrize("name", ALL_SAMPLES_DEALT)
def test_a_seed_gives_one_partition_and_another_seed_another(name: str) -> None:
    def draw(seed: int) -> Partition:
        return split(toy_dataset(), name, seed, clients=10, **COUNTED[name])

    first, second = draw(3), draw(3)
    assert np.array_equal(first.train_offsets, second.train_offsets)
    assert np.array_equal(first.train_rows, second.train_rows)
    other = draw(4)
    assert not np.array_equal(first.train_rows, other.train_rows)


@pytest.mark.parametrize("name", ALL_SAMPLES_DEALT)
def test_more_clients_than_samples_is_a_clear_error(name: str) -> None:
    with pytest.raises(UserError, match="601 clients cannot share 600 training samples of toy"):
        split(toy_dataset(), name, clients=601, **COUNTED[name])


def test_min_samples_is_kept_and_impossible_ones_are_refused() -> None:
    dataset = toy_dataset(samples=600)
    for name in ("dirichlet", "quantity_skew"):
        params = {"clients": 50, "alpha": 0.05, "min_samples": 9}
        assert split(dataset, name, **params).samples.min() >= 9
        with pytest.raises(
            UserError, match=r"50 clients cannot share 600 .* with at least 13 each"
        ):
            split(dataset, name, **{**params, "min_samples": 13})
    with pytest.raises(UserError, match="100 draws gave no partition"):
        split(dataset, "dual_dirichlet", clients=50, min_samples=11)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "quantity_skew", "majority_label", "shards"])
def test_ten_thousand_clients_are_dealt(name: str) -> None:
    dataset = toy_dataset(samples=50_000, shape=(1,))
    partition = split(dataset, name, clients=10_000, **COUNTED[name])
    assert partition.samples.min() >= 1
    assert partition.samples.sum() == 50_000


def test_bad_parameters_are_refused_by_the_models() -> None:
    registry = CATALOG.parts("partition")
    builders: list[Callable[[], object]] = [
        lambda: registry["iid"].Params(clients=0),
        lambda: registry["dirichlet"].Params(clients=2, alpha=0),
        lambda: registry["dirichlet"].Params(clients=2, alpha=float("nan")),
        lambda: registry["majority_label"].Params(clients=2, similarity=1.5),
        lambda: registry["iid"].Params(clients=2, test="half"),
        lambda: registry["iid"].Params(clients=2, test_share=1.0),
    ]
    for build in builders:
        with pytest.raises(ValueError, match="validation error"):
            build()
