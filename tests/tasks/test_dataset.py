"""Data sets: what they check, and samples that are read when they are first used."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, deferred
from tests.tasks.toys import load

LABELS = np.array([0, 1], dtype=np.int64)


def lazy(read: Callable[[], Any], dtype: Any = np.float32) -> Dataset:
    return Dataset(
        "lazy", deferred((2, 3), dtype, read), LABELS, np.zeros((0, 3), dtype), LABELS[:0], 2
    )


def test_deferred_samples_are_read_once_and_only_when_used() -> None:
    reads = []

    def read() -> np.ndarray:
        reads.append(1)
        return np.ones((2, 3), dtype=np.float32)

    dataset = lazy(read)
    assert (dataset.input_shape, dataset.bytes) == ((3,), 24 + 16)
    assert not reads
    assert dataset.train_x is dataset.train_x
    assert (dataset.train_x.sum(), len(reads)) == (6, 1)
    assert (dataset.input_shape, dataset.bytes) == ((3,), 24 + 16)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.ones((2, 4), dtype=np.float32), "differ from the declared shape"),
        (np.ones((2, 3)), "differ from the declared shape"),
        (
            np.array([[0, 0, 0], [0, np.nan, 0]], dtype=np.float32),
            "train_x: sample 1 is not finite",
        ),
    ],
)
def test_deferred_samples_are_checked_when_they_are_read(samples: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _ = lazy(lambda: samples).train_x


def test_the_common_work_is_the_same_whichever_part_is_read_first() -> None:
    params = {"clients": 2, "samples": 3, "test_samples": 4}
    first, second = load("common_work", **params), load("common_work", **params)
    test_x, train_x = first.test_x, first.train_x
    assert np.array_equal(second.train_x, train_x)
    assert np.array_equal(second.test_x, test_x)
    assert np.array_equal(second.train_y, first.train_y)
