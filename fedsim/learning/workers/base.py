"""What a worker is given, and what every sort of workers can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.device import Execution
from fedsim.methods.base import Cohort, LocalUpdate

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Received:
    """A vector as each of B dispatches has received it; those of one version share one.

    Attributes:
        vectors: the different ones, (elements,) each.
        index: which of them each dispatch received, B numbers.
    """

    vectors: tuple[Tensor, ...]
    index: tuple[int, ...]

    @classmethod
    def of(cls, rows: Iterable[Tensor]) -> Received:
        """From the vector of each dispatch, of which many may be the same object."""
        places: dict[int, int] = {}
        vectors: list[Tensor] = []
        index: list[int] = []
        for row in rows:
            place = places.setdefault(id(row), len(vectors))
            if place == len(vectors):
                vectors.append(row)
            index.append(place)
        return cls(tuple(vectors), tuple(index))

    def matrix(self, device: torch.device) -> Tensor:
        """(B, elements) on a device; without a copy where all received the same one and it is there."""
        vectors = [vector.to(device) for vector in self.vectors]
        if len(vectors) == 1:
            return vectors[0].expand(len(self.index), -1)
        return torch.stack([vectors[place] for place in self.index])


@dataclass(frozen=True, slots=True)
class Group:
    """B dispatches that are trained together, sorted by number of steps, most first.

    A worker makes its :class:`fedsim.methods.base.Cohort` of it, on its own device and when its turn comes.

    Attributes:
        clients, sequences, versions, rounds, steps, steps_assigned, samples: as in the cohort, (B,).
        learning_rates: local learning rate of each.
        down: vectors received, by name.
        memory: reads the rows that the clients keep, name to (B, elements).
    """

    clients: IntArray
    sequences: IntArray
    versions: IntArray
    rounds: IntArray
    steps: IntArray
    steps_assigned: IntArray
    samples: IntArray
    learning_rates: tuple[float, ...]
    down: Mapping[str, Received]
    memory: Callable[[], Mapping[str, Tensor]]

    def cohort(self, execution: Execution) -> Cohort:
        """The cohort on a device."""
        device = execution.device
        return Cohort(
            clients=self.clients,
            sequences=self.sequences,
            versions=self.versions,
            rounds=self.rounds,
            steps=self.steps,
            steps_assigned=self.steps_assigned,
            learning_rates=torch.tensor(self.learning_rates, dtype=execution.dtype, device=device),
            samples=self.samples,
            down={name: received.matrix(device) for name, received in self.down.items()},
            memory={name: rows.to(device) for name, rows in self.memory().items()},
        )


class Workers(ABC):
    """Train groups, several at once. What comes back is the same bits whatever their sort and number.

    Attributes:
        count: groups that are trained at the same time; known after :meth:`start`.
    """

    count: int

    def start(self, expected: Mapping[str, str | int]) -> None:  # noqa: B027 - most need no start
        """Make ready; done once, whether it is called or not.

        Args:
            expected: what the bits of the results depend on, see :meth:`Station.describe`; the same for all workers.

        Raises:
            UserError: there are no such workers.
        """

    @abstractmethod
    def train(self, groups: Sequence[Group]) -> Iterator[LocalUpdate]:
        """Updates of the groups, in order and on the first device; no further ahead of the reader than needed."""

    @abstractmethod
    def stop(self) -> None:
        """End what was started, also in the middle of :meth:`train`; once or more often."""

    @abstractmethod
    def describe(self) -> Mapping[str, str | int]:
        """Sort and number, for ``run.json``."""
