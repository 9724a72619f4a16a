"""Local steps that train one of several nested parts of a model, drawn for every dispatch and step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.kernels.base import Kernel, Session
from fedsim.learning.submodels.parts import Parts
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.arrays import Ints


class _NestedSession(Session):
    """Sessions of single dispatches, one for each part that a dispatch draws."""

    def __init__(
        self,
        kernel: NestedKernel,
        clients: Ints,
        sequences: Ints,
        steps: Ints,
        phase: int,
    ) -> None:
        self._kernel = kernel
        self._dispatches = clients, sequences, steps
        self._phase = phase
        keys = zip(clients.tolist(), sequences.tolist(), strict=True)
        numbers = np.arange(int(steps.max(initial=0)))
        draws = [
            Stream(kernel.seed, Purpose.SUBMODEL, *key, phase).uniforms(numbers) for key in keys
        ]
        self._drawn = (np.array(draws) * len(kernel.kernels)).astype(np.int64)
        # By dispatch and part: its session, and the memory of its model and gradient.
        self._open: dict[tuple[int, int], tuple[Session, Tensor, Tensor]] = {}

    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        # Copied at once: a recording's result is valid until the next call.
        losses = weights.new_empty(len(weights))
        for row in range(len(weights)):
            number = int(self._drawn[row, step])
            positions = self._kernel.positions(number, weights.device)
            if (row, number) not in self._open:
                clients, sequences, steps = (one[row : row + 1] for one in self._dispatches)
                kernel = self._kernel.kernels[number]
                session = kernel.session(clients, sequences, steps, self._phase)
                model = weights.new_empty(1, len(positions))
                self._open[row, number] = session, model, torch.zeros_like(model)
            session, model, gradient = self._open[row, number]
            torch.index_select(weights[row], 0, positions, out=model[0])
            losses[row] = session.gradients(step, model, gradient)[0]
            out[row].zero_()
            out[row].index_copy_(0, positions, gradient[0])
        return losses


class NestedKernel(Kernel):
    """Every step of a dispatch trains a part of its client's part, drawn uniformly; other entries have no gradient.

    Attributes:
        kernels: kernels of the parts that a step may draw.
    """

    name = "nested"
    revision = 1
    group_invariant = True

    def __init__(self, parts: Parts, kernels: Sequence[Kernel], level: int, seed: int) -> None:
        self._parts = parts
        self._all = kernels
        self._level = level
        self.seed = seed
        self.kernels = kernels[level:]
        self.dispatch_loss = kernels[level].dispatch_loss

    def positions(self, number: int, device: torch.device) -> Tensor:
        """Positions of one of the parts in the client's part."""
        return self._parts.within(self._level, self._level + number, device)

    def replica(self) -> Kernel:
        return NestedKernel(
            self._parts, [kernel.replica() for kernel in self._all], self._level, self.seed
        )

    def session(self, clients: Ints, sequences: Ints, steps: Ints, phase: int) -> Session:
        return _NestedSession(self, clients, sequences, steps, phase)

    def largest_group(self) -> int:
        """One: dispatches draw different parts."""
        return 1

    def visited(self, clients: Ints, steps: Ints) -> Ints:
        return self.kernels[0].visited(clients, steps)

    def shape_class(self, clients: Ints) -> Ints:
        return self.kernels[0].shape_class(clients)
