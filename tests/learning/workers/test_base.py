"""A vector that many clients received is held once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.device import Execution
from fedsim.learning.workers import Group

CPU = torch.device("cpu")
COLUMNS = (
    "clients",
    "sequences",
    "versions",
    "rounds",
    "steps",
    "steps_assigned",
    "samples",
    "in_full",
)


def group(*received: Tensor) -> Group:
    """Dispatches that received these vectors."""
    count = len(received)
    columns = dict.fromkeys(COLUMNS, np.arange(count))
    memory: Any = lambda: {"own": torch.zeros(count, 3)}  # noqa: E731
    return Group(columns, (0.1,) * count, {"model": received}, memory)


def test_a_vector_that_many_received_is_there_once() -> None:
    execution = Execution(CPU, torch.float32, None, 1)
    first, second = torch.arange(3.0), torch.arange(3.0) + 5
    several = group(first, second, first, first).cohort(execution).down["model"]
    assert torch.equal(several, torch.stack([first, second, first, first]))
    same = group(first, second, first, first).part(slice(2, 4)).cohort(execution).down["model"]
    assert same.stride() == (0, 1)
    assert same.data_ptr() == first.data_ptr()
