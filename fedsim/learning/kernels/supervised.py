"""Mini-batches of a group of dispatches, shared by the kernels of supervised tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.batches import Batches, BatchOrder
from fedsim.learning.kernels.base import Correction, IntArray, Kernel, Session
from fedsim.learning.kernels.replay import Replay
from fedsim.learning.samples import Samples
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.metrics import DispatchLoss

# Sample numbers drawn at once.
_MOST_PLACES = 1 << 22
# Groups on CPU, where the data of a group should stay in the cache (measured).
_CPU_GROUP_BYTES = 8 << 20
_CPU_GROUPS = (4, 32)
# On CUDA, larger groups are better as long as they leave room for samples and clients' memories.
_CUDA_SHARE = 0.25
_CUDA_MOST = 2048
# Rows per client in a group: received model, local model, gradient and update.
_ROWS_OF_A_CLIENT = 4
_SEED_MASK = (1 << 63) - 1
# Steps that one recording holds.
_MOST_STEPS = 16


class SupervisedKernel(Kernel):
    """A kernel that works on mini-batches of samples, by default of all clients of a group at once.

    Args:
        samples: training samples of the task, on the compute device.
        order: samples of each step.
        dispatch_loss: see :class:`fedsim.learning.kernels.base.Kernel`.

    Attributes:
        replay: calls the operations of every step.
    """

    session_class: ClassVar[type[SupervisedSession[Any]]]

    def __init__(
        self, samples: Samples, order: BatchOrder, *, dispatch_loss: DispatchLoss = "mean"
    ) -> None:
        self.samples = samples
        self.order = order
        self.dispatch_loss: DispatchLoss = dispatch_loss
        self.task = samples.task
        self.execution = execution = samples.execution
        records = execution.cuda_graphs if self.recorded else False
        self.replay = Replay(execution.device, records=records)
        self._most = _CUDA_MOST
        self.prepare()

    def prepare(self) -> None:
        """Make what the kernel needs besides the samples."""

    def session(
        self, clients: IntArray, sequences: IntArray, steps: IntArray, phase: int
    ) -> Session:
        return self.session_class(self, clients, sequences, steps, phase)

    def replica(self) -> Kernel:
        return type(self)(self.samples, self.order, dispatch_loss=self.dispatch_loss)

    def visited(self, clients: IntArray, steps: IntArray) -> IntArray:
        return self.order.visited(clients, steps)

    def take_step(
        self, weights: Tensor, factors: Tensor, inputs: Tensor, labels: Tensor, mean_weights: Tensor
    ) -> Tensor:
        """One local step of plain SGD of ``weights`` (b, P), in place, on :meth:`StackedSession.padded` batches.

        ``factors`` are minus the learning rates, (b, 1). Returns the losses before it, as :meth:`Session.gradients`.
        """
        raise NotImplementedError

    def take_steps(
        self, weights: Tensor, factors: Tensor, rows: Tensor, labels: Tensor, mean_weights: Tensor
    ) -> Tensor:
        """The same on the samples ``rows`` (S, b, width) of S consecutive steps; returns sums of their losses."""
        losses = weights.new_zeros(len(weights))
        for numbers, *batches in zip(rows, labels, mean_weights, strict=True):
            inputs = self.samples.gather(numbers.reshape(-1))
            inputs = inputs.view(*numbers.shape, *inputs.shape[1:])
            losses += self.take_step(weights, factors, inputs, *batches)
        return losses

    @property
    def model_bytes(self) -> int:
        """Size of one local model."""
        return self.task.layout.size * self.execution.dtype.itemsize

    @property
    def fixed_memory(self) -> bool:
        return self.replay.records

    def notes(self) -> Mapping[str, str]:
        """Why steps are not recorded or groups are smaller, although they should not be."""
        notes = {}
        if self.replay.failure is not None:
            notes["cuda_graphs"] = f"off: {self.replay.failure}"
        if self._most < _CUDA_MOST:
            notes["largest_group"] = f"{self._most} clients: more do not fit into the GPU's memory"
        return notes

    def limit_group(self, rows: int) -> None:
        """Keep groups to this size from now on, and forget recordings, which hold memory."""
        self._most = min(self._most, rows)
        self.replay.forget()

    def cuda_group(self, activations: int = 0) -> int:
        """Clients whose training takes a fixed part of the GPU's memory, with ``activations`` numbers per sample."""
        # The backward pass allocates as many numbers again while it uses them.
        batch = 2 * activations * self.order.batch_size * self.execution.dtype.itemsize
        client_bytes = _ROWS_OF_A_CLIENT * self.model_bytes + batch
        total = torch.cuda.get_device_properties(self.execution.device).total_memory
        return int(np.clip(_CUDA_SHARE * total // client_bytes, 1, self._most))

    def shape_class(self, clients: IntArray) -> IntArray:
        return self.order.widths(clients)

    def largest_group(self) -> int:
        """As many clients as fit into the caches of a core, or into a part of the GPU's memory."""
        if self.execution.device.type == "cuda":
            return self.cuda_group()
        return int(np.clip(_CPU_GROUP_BYTES // self.model_bytes, *_CPU_GROUPS))


KernelType = TypeVar("KernelType", bound=SupervisedKernel)


class SupervisedSession(Session, Generic[KernelType]):
    """Draws the batches of the working dispatches, several steps ahead."""

    def __init__(
        self,
        kernel: KernelType,
        clients: IntArray,
        sequences: IntArray,
        steps: IntArray,
        phase: int,
    ) -> None:
        self._kernel, self.order, self.samples = kernel, kernel.order, kernel.samples
        self._clients, self._sequences, self._steps, self._phase = clients, sequences, steps, phase
        self.width = int(self.order.widths(clients[:1])[0]) if len(clients) else 0
        self._drawn: Batches | None = None
        self._labels = torch.empty(0)
        self._augmenter = augmenter = self.order.augmenter
        self._streams = augmenter.keys(clients, sequences, phase) if augmenter else torch.empty(0)

    def draw(self, step: int, active: int) -> tuple[Tensor, Tensor]:
        """Sample numbers (b, width) and sample counts (b,) of the first b = ``active`` dispatches at ``step``."""
        drawn = self._drawn
        if drawn is None or step >= drawn.first + len(drawn.rows):
            ahead = max(1, _MOST_PLACES // (active * self.width))
            drawn = self.order.batches(
                self._clients[:active],
                self._sequences[:active],
                first=step,
                last=min(int(self._steps[0]), step + ahead),
                phase=self._phase,
            )
            self._drawn = drawn
            self._on_draw(drawn)
        at = step - drawn.first
        return drawn.rows[at, :active], drawn.counts[at, :active]

    def inputs(
        self, step: int, rows: Tensor, first: int = 0, scratch: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Inputs of the samples ``rows`` (S, b, width), (S x b x width, *shape), augmented if requested.

        They are those of b dispatches from ``first`` on, at S steps from ``step`` on.
        """
        moves = None
        if self._augmenter is not None:
            steps, dispatches, width = rows.shape
            streams = self._streams[first : first + dispatches].repeat(steps)
            numbers = torch.arange(step, step + steps, device=rows.device)
            moves = self._augmenter.moves(streams, numbers.repeat_interleave(dispatches), width)
        return self.samples.gather(rows.reshape(-1), scratch, moves)

    def dropout_seed(self, step: int, row: int) -> int:
        """Seed of the dropout masks of the dispatch ``row`` at ``step``, 63 bits."""
        keys = (int(self._clients[row]), int(self._sequences[row]), self._phase)
        return Stream(self.order.seed, Purpose.DROPOUT, *keys).hash(step) & _SEED_MASK

    def _on_draw(self, drawn: Batches) -> None:
        """Prepare the labels of the batches just drawn."""
        self._labels = self.samples.y[drawn.rows]
        self._first = drawn.first


class StackedSession(SupervisedSession[KernelType]):
    """Mini-batches of several dispatches, padded to one width."""

    def _on_draw(self, drawn: Batches) -> None:
        super()._on_draw(drawn)
        position = torch.arange(self.width, device=drawn.counts.device)
        counts = drawn.counts.clamp(min=1).unsqueeze(2)
        # (S, B, width): 1 / count, and 0 for padding.
        self._mean_weights = (position < counts).to(self._kernel.execution.dtype) / counts

    def descend(
        self, weights: Tensor, rates: Tensor, active: IntArray, correction: Correction | None = None
    ) -> Tensor:
        """Plain steps, several with one launch if they are recorded."""
        kernel, losses = self._kernel, weights.new_zeros(len(weights))
        factors = rates.neg().unsqueeze(1)
        most = _MOST_STEPS if self.samples.on_device and self._augmenter is None else 1
        step = 0
        while step < len(active):
            rows = int(active[step])
            self.draw(step, rows)
            at, given = step - self._first, factors[:rows]
            alike = int((active[step : step + most] == rows).sum())
            steps = min(alike, len(self._labels) - at)
            if rows > active[-1]:
                # Numbers of steps differ: powers of two, so that there are few recordings.
                steps = 1 << steps.bit_length() - 1
            if steps == 1:
                batches = self.padded(step, rows)
                losses[:rows] += kernel.replay(
                    kernel.take_step, (weights[:rows],), (given, *batches)
                )
            else:
                assert self._drawn is not None
                drawn = self._drawn.rows, self._labels, self._mean_weights
                pieces = [each[at : at + steps, :rows] for each in drawn]
                losses[:rows] += kernel.replay(
                    kernel.take_steps, (weights[:rows],), (given, *pieces)
                )
            step += steps
        return losses

    def padded(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
        """The mini-batches of the first b = ``active`` dispatches at ``step``.

        Inputs (b, width, *shape), labels (b, width), and the weight of each position in its batch's mean, (b, width).
        """
        rows, _ = self.draw(step, active)
        inputs = self.inputs(step, rows[None])
        at = step - self._first
        return (
            inputs.view(active, self.width, *inputs.shape[1:]),
            self._labels[at, :active],
            self._mean_weights[at, :active],
        )
