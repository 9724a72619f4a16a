"""The groups that workers train, and the interface of all types of workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.contract import Named
from fedsim.learning.device import Execution, uploaded
from fedsim.methods.base import Cohort, LocalUpdate

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Received:
    """A vector as received by each of B dispatches: the distinct vectors (elements,), and the number of each one's."""

    vectors: tuple[Tensor, ...]
    index: tuple[int, ...]

    @classmethod
    def of(cls, rows: Iterable[Tensor]) -> Received:
        """Collect the vectors of the dispatches; many of them may be the same object."""
        numbers: dict[int, int] = {}
        vectors: list[Tensor] = []
        index: list[int] = []
        for row in rows:
            number = numbers.setdefault(id(row), len(vectors))
            if number == len(vectors):
                vectors.append(row)
            index.append(number)
        return cls(tuple(vectors), tuple(index))

    def matrix(self, device: torch.device) -> Tensor:
        """The rows (B, elements) on a device; not a copy if all received the same vector and it is there already."""
        vectors = [vector.to(device) for vector in self.vectors]
        if len(vectors) == 1:
            return vectors[0].expand(len(self.index), -1)
        return torch.stack([vectors[number] for number in self.index])


@dataclass(frozen=True, slots=True)
class Group:
    """B dispatches that are trained together, as a :class:`fedsim.methods.base.Cohort` on the device of a worker.

    Attributes:
        columns: the (B,) int64 arrays of the cohort, by the names of its attributes.
        learning_rates: local learning rate of each.
        down: vectors received, by name.
        memory: reads the clients' memories, name to (B, elements).
    """

    columns: Mapping[str, IntArray]
    learning_rates: tuple[float, ...]
    down: Mapping[str, Received]
    memory: Callable[[], Mapping[str, Tensor]]

    def __len__(self) -> int:
        return len(self.learning_rates)

    def part(self, rows: slice) -> Group:
        """Some of the dispatches."""
        return Group(
            {name: column[rows] for name, column in self.columns.items()},
            self.learning_rates[rows],
            {
                name: Received.of([received.vectors[number] for number in received.index[rows]])
                for name, received in self.down.items()
            },
            lambda: {name: matrix[rows] for name, matrix in self.memory().items()},
        )

    def cohort(self, execution: Execution) -> Cohort:
        """The cohort on a device."""
        device = execution.device
        return Cohort(
            **self.columns,
            learning_rates=uploaded(np.array(self.learning_rates), device).to(execution.dtype),
            down=Named((name, received.matrix(device)) for name, received in self.down.items()),
            memory=Named((name, rows.to(device)) for name, rows in self.memory().items()),
        )


class Workers(ABC):
    """Train groups, several at once. Results are the same bits for all types and numbers of workers.

    Attributes:
        count: number of groups trained at the same time; known after :meth:`start`.
    """

    count: int

    def start(self, expected: Mapping[str, str | int]) -> None:  # noqa: B027 - most need no start
        """Start the workers, for all of which :meth:`Station.describe` must be as ``expected``.

        Raises:
            UserError: the workers are not available.
        """

    @abstractmethod
    def train(self, groups: Sequence[Group]) -> Iterator[LocalUpdate]:
        """Updates of the groups, in order and on the first device, computed no further ahead than needed."""

    @abstractmethod
    def stop(self) -> None:
        """End the workers, even during :meth:`train`; may be called repeatedly."""

    @abstractmethod
    def describe(self) -> Mapping[str, str | int]:
        """Type and number of workers, for ``run.json``."""
