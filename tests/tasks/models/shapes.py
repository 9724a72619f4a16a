"""Data sets of given shapes."""

from __future__ import annotations

import numpy as np

from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset, deferred
from tests.tasks.toys import characters, toy_dataset

START = Stream(0, Purpose.INITIAL_MODEL)


GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def dataset_of(shape: tuple[int, ...]) -> Dataset:
    return characters() if shape == (12,) else toy_dataset(samples=20, shape=shape, tests=10)


def described(shape: tuple[int, ...], classes: int, kind: str) -> Dataset:
    """A data set whose samples cannot be read."""

    def read() -> np.ndarray:
        raise AssertionError("an outline needs no samples")

    labels = np.arange(classes, dtype=np.float32 if kind == "regression" else np.int64)
    samples = deferred((classes, *shape), np.uint8, read)
    return Dataset("described", samples, labels, samples, labels, classes, kind)  # type: ignore[arg-type]
