"""Small data sets and tasks for the tests."""

import dataclasses
from typing import Any

import numpy as np

from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import Partition

START = Stream(0, Purpose.INITIAL_MODEL)


GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def toy_dataset(
    samples: int = 600,
    classes: int = 10,
    shape: tuple[int, ...] = (1, 8, 8),
    groups: int = 0,
    tests: int = 200,
    seed: int = 0,
    labels: np.ndarray | None = None,
) -> Dataset:
    """Random 8-bit images; labels as even as possible and shuffled, unless given."""
    rng = np.random.default_rng(seed)

    def even(count: int) -> np.ndarray:
        return rng.permutation(np.arange(count) % classes).astype(np.int64)

    def group_ids(count: int) -> np.ndarray | None:
        return rng.integers(groups, size=count).astype(np.int64) if groups else None

    train_y = even(samples) if labels is None else labels
    return Dataset(
        name="toy",
        train_x=rng.integers(0, 256, size=(len(train_y), *shape)).astype(np.uint8),
        train_y=train_y,
        test_x=rng.integers(0, 256, size=(tests, *shape)).astype(np.uint8),
        test_y=even(tests),
        classes=classes,
        scale=np.full((1,) * len(shape), 1 / 255, dtype=np.float32),
        shift=np.zeros((1,) * len(shape), dtype=np.float32),
        train_groups=group_ids(len(train_y)),
        test_groups=group_ids(tests),
        group_names=tuple(f"g{number}" for number in range(groups)),
    )


def quantities(dataset: Dataset) -> Dataset:
    """The data set with its labels as numbers to be predicted."""
    return dataclasses.replace(
        dataset,
        kind="regression",
        classes=1,
        class_names=(),
        train_y=dataset.train_y.astype(np.float32),
        test_y=dataset.test_y.astype(np.float32),
    )


def characters(samples: int = 40, length: int = 12, classes: int = 65) -> Dataset:
    """Random sequences of character codes."""
    rng = np.random.default_rng(0)
    x = rng.integers(classes, size=(samples, length)).astype(np.uint8)
    y = rng.integers(classes, size=samples).astype(np.int64)
    return Dataset("letters", x, y, x, y, classes, "next_character")


def load(name: str, **params: Any) -> Dataset:
    """A data set by name."""
    component = CATALOG.parts("dataset")[name]
    return component(component.Params(**params)).load()


def split(dataset: Dataset, name: str, seed: int = 0, **params: Any) -> Partition:
    """A partition by name."""
    component = CATALOG.parts("partition")[name]
    return component(component.Params(**params)).split(dataset, Stream(seed, Purpose.PARTITION))


def task(dataset: Dataset, model: str, clients: int = 4, **params: Any) -> SupervisedTask:
    """A task with an even partition."""
    component = CATALOG.parts("model")[model]
    return SupervisedTask(
        dataset, split(dataset, "iid", clients=clients), component(component.Params(**params))
    )


def train_rows(partition: Partition, client: int) -> np.ndarray:
    """Training rows of one client."""
    return partition.train_rows[slice(*partition.train_offsets[client : client + 2])]


def own_test_rows(partition: Partition, client: int) -> np.ndarray:
    """Own test rows of one client; empty if clients have none."""
    if partition.test_offsets is None or partition.test_rows is None:
        return np.empty(0, dtype=np.int64)
    return partition.test_rows[slice(*partition.test_offsets[client : client + 2])]


def dataset_of(shape: tuple[int, ...]) -> Dataset:
    return characters() if shape == (12,) else toy_dataset(samples=20, shape=shape, tests=10)


def described(shape: tuple[int, ...], classes: int, kind: str) -> Dataset:
    """A data set of one black sample per class."""
    labels = np.arange(classes, dtype=np.float32 if kind == "regression" else np.int64)
    samples = np.zeros((classes, *shape), np.uint8)
    return Dataset("described", samples, labels, samples, labels, classes, kind)  # type: ignore[arg-type]
