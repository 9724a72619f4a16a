"""Exact gradients of a task that knows them in closed form."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedsim.learning.kernels.base import Kernel, Session
from fedsim.parts.functions import shown, wrong_return
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.base import AnalyticTask
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.metrics import DispatchLoss

_LARGEST_GROUP = 1024
# Offset between the noise counters of two phases.
_PHASE_STRIDE = 1 << 20


class _QuadraticSession(Session):
    def __init__(self, kernel: QuadraticKernel, clients: Ints, sequences: Ints, first: int) -> None:
        self._kernel, self._task = kernel, kernel.task
        self._clients = clients
        self._sequences = sequences
        self._first = first

    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        clients = self._clients[: len(weights)]
        gradients = self._task.gradients(clients, weights)
        out.copy_(self._of_shape("gradients", gradients, weights.shape))
        if self._task.noisy:
            sequences = self._sequences[: len(weights)]
            noise = self._task.noise(self._kernel.stream, clients, sequences, self._first + step)
            out.add_(self._of_shape("noise", noise, weights.shape).to(out))
        losses = self._task.losses(clients, weights)
        self._of_shape("losses", losses, weights.shape[:1])
        return self._kernel.reported(losses, losses.unsqueeze(1))

    def _of_shape(self, function: str, value: Any, shape: tuple[int, ...]) -> Tensor:
        """What a function of the task returned."""
        if not isinstance(value, Tensor) or value.shape != shape:
            hint = f"return a tensor of shape {tuple(shape)}, one row per client"
            raise wrong_return(type(self._task), function, shown(value), hint)
        return value


class QuadraticKernel(Kernel):
    """The task's own gradients, with noise from the scenario's ``seed``, if any.

    The batch size is meaningless here: a mini-batch is one sample, whose loss is the client's objective.
    """

    name = "quadratic"
    revision = 1
    group_invariant = True

    def __init__(
        self, task: AnalyticTask, seed: int, *, dispatch_loss: DispatchLoss = "mean"
    ) -> None:
        self.task = task
        self.dispatch_loss = dispatch_loss
        self.stream = Stream(seed, Purpose.GRADIENT_NOISE)

    def replica(self) -> QuadraticKernel:
        return self

    def session(self, clients: Ints, sequences: Ints, steps: Ints, phase: int) -> Session:
        return _QuadraticSession(self, clients, sequences, phase * _PHASE_STRIDE)

    def visited(self, clients: Ints, steps: Ints) -> Ints:
        return steps

    def largest_group(self) -> int:
        """A large number: rows are short, and the host's work per step dominates."""
        return _LARGEST_GROUP
