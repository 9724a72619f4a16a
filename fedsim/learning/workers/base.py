"""The groups of dispatches that workers train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.contract import Named
from fedsim.learning.device import Execution, uploaded
from fedsim.methods.base import Cohort

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """B dispatches that are trained together, as a :class:`fedsim.methods.base.Cohort` on the device of a worker.

    Attributes:
        columns: the (B,) arrays of the cohort, by the names of its attributes.
        learning_rates: local learning rate of each.
        down: the vector (elements,) that each received, by name; those of one version are one object.
        memory: reads the clients' memories, name to (B, elements).
        in_place: other memories, whose stored rows (elements,) are changed in place, by name.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    learning_rates: tuple[float, ...]
    down: Mapping[str, Sequence[Tensor]]
    memory: Callable[[], Mapping[str, Tensor]]
    in_place: Mapping[str, list[Tensor]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.learning_rates)

    def part(self, rows: slice) -> Group:
        """Some of the dispatches."""
        return Group(
            {name: column[rows] for name, column in self.columns.items()},
            self.learning_rates[rows],
            {name: received[rows] for name, received in self.down.items()},
            lambda: {name: matrix[rows] for name, matrix in self.memory().items()},
            {name: stored[rows] for name, stored in self.in_place.items()},
        )

    def cohort(self, execution: Execution) -> Cohort:
        """The cohort on a device."""
        device = execution.device
        return Cohort(
            **self.columns,
            learning_rates=uploaded(np.array(self.learning_rates), device).to(execution.dtype),
            down=Named((name, _matrix(received, device)) for name, received in self.down.items()),
            memory=Named((name, rows.to(device)) for name, rows in self.memory().items()),
            in_place=self.in_place,
        )


def _matrix(received: Sequence[Tensor], device: torch.device) -> Tensor:
    """The vectors as rows on a device; not a copy if all are one object, which is there already."""
    moved = {id(vector): vector for vector in received}
    moved = {key: vector.to(device) for key, vector in moved.items()}
    if len(moved) == 1:
        return moved[id(received[0])].expand(len(received), -1)
    return torch.stack([moved[id(vector)] for vector in received])
