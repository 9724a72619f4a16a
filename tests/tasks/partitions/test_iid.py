"""The iid partition."""

from __future__ import annotations

from tests.tasks.toys import split, toy_dataset


def test_iid_sizes_differ_by_one_at_most() -> None:
    partition = split(toy_dataset(samples=103), "iid", clients=10)
    assert sorted(partition.samples) == [10] * 7 + [11] * 3
