"""Data sets of given shapes."""

from __future__ import annotations

from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from tests.tasks.toys import characters, toy_dataset

START = Stream(0, Purpose.INITIAL_MODEL)


GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def dataset_of(shape: tuple[int, ...]) -> Dataset:
    return characters() if shape == (12,) else toy_dataset(samples=20, shape=shape, tests=10)
