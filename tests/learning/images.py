"""Images of the tests."""

from typing import Any

import numpy as np
import torch

from fedsim.learning.kernels.supervised import SupervisedSession
from fedsim.scenario.training import Augmentation, Training
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import Partition
from tests.learning.problems import Built, kernel_of

CROP_AND_FLIP = Augmentation(crop_padding=2, flip=True)


def colour_task() -> SupervisedTask:
    """Colour images of 5 x 7 as 8-bit pixels; three clients with 9, 20 and 3 of them."""
    rng = np.random.default_rng(1)
    build: Any = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(105, 4))  # noqa: E731
    dataset = Dataset(
        name="colours",
        train_x=rng.integers(0, 256, (32, 3, 5, 7), dtype=np.uint8),
        train_y=rng.integers(0, 4, 32),
        test_x=rng.integers(0, 256, (6, 3, 5, 7), dtype=np.uint8),
        test_y=rng.integers(0, 4, 6),
        classes=4,
        scale=np.array([1, 2, 4], dtype=np.float32)[:, None, None] / 255,
        shift=np.array([0.5, -1, 0.25], dtype=np.float32)[:, None, None],
    )
    partition = Partition(np.array([0, 9, 29, 32]), rng.permutation(32))
    return SupervisedTask(dataset, partition, Built(build, "module"))


def session_of(
    task: SupervisedTask, training: Training, clients: list[int], sequences: list[int], phase: int
) -> SupervisedSession:
    session = kernel_of(task, training).session(
        np.array(clients), np.array(sequences), np.full(len(clients), 9), phase
    )
    assert isinstance(session, SupervisedSession)
    return session
