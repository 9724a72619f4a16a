"""Mini-batches of a group of dispatches, shared by the kernels of supervised tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.batches import BatchOrder
from fedsim.learning.kernels.base import Correction, Kernel, Session
from fedsim.learning.kernels.replay import Replay
from fedsim.learning.samples import Samples
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.metrics import DispatchLoss

# Sample numbers drawn at once.
_MOST_PLACES = 1 << 22
# Groups on CPU, where the data of a group should stay in the cache (measured).
_CPU_GROUP_BYTES = 8 << 20
_CPU_GROUPS = (4, 64)
# On CUDA, larger groups are better as long as they leave room for samples and clients' memories.
_CUDA_SHARE = 0.25
_CUDA_MOST = 2048
# Rows per client in a group: received model, local model, gradient and update.
_ROWS_OF_A_CLIENT = 4
_SEED_MASK = (1 << 63) - 1
# Bytes of samples that are gathered at once, of a client and of a group, and the most steps of a group. On a CPU, they
# share the cache with the models; on CUDA, one recording holds the steps.
_PIECES = {"cpu": (1 << 20, 1 << 23, 1 << 30), "cuda": (1 << 26, 1 << 26, 64)}


class SupervisedKernel(Kernel):
    """A kernel that works on mini-batches of samples, by default of all clients of a group at once.

    Args:
        samples: training samples of the task, on the compute device.
        order: samples of each step.
        dispatch_loss: see :class:`fedsim.learning.kernels.base.Kernel`.

    Attributes:
        replay, draws: call the operations of steps, and those that draw and prepare their mini-batches.
        client_by_client: whether plain steps are taken client by client.
    """

    session_class: ClassVar[type[SupervisedSession[Any]]]
    client_by_client: bool = False

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
        self.draws = Replay(execution.device, records="auto" if records else False)
        self._most = _CUDA_MOST
        self.prepare()

    def prepare(self) -> None:
        """Make what the kernel needs besides the samples."""

    def session(self, clients: Ints, sequences: Ints, steps: Ints, phase: int) -> Session:
        return self.session_class(self, clients, sequences, steps, phase)

    def replica(self) -> Kernel:
        return type(self)(self.samples, self.order, dispatch_loss=self.dispatch_loss)

    def visited(self, clients: Ints, steps: Ints) -> Ints:
        return self.order.visited(clients, steps)

    def drawn(self, *plan: Tensor) -> tuple[Tensor, ...]:
        """Sample numbers (S, b, width) of a plan of the order, and what sessions need of these samples."""
        rows = self.order.draw(*plan)
        return rows, *self.session_class.prepared(self, rows, plan[-1][1])

    def take_steps(
        self, models: Tensor, factors: Tensor, *batch: Tensor, correction: Correction | None = None
    ) -> Tensor:
        """S local steps of plain SGD of ``models`` (b, P), in place, on :meth:`StackedSession.batches`.

        ``factors`` are minus the learning rates, (b, 1). Returns the losses before each step, (S, b), as
        :meth:`Session.gradients`.
        """
        raise NotImplementedError

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
        self.draws.forget()

    def cuda_group(self, activations: int = 0) -> int:
        """Clients whose training takes a fixed part of the GPU's memory, with ``activations`` numbers per sample."""
        # The backward pass allocates as many numbers again while it uses them.
        batch = 2 * activations * self.order.batch_size * self.execution.dtype.itemsize
        client_bytes = _ROWS_OF_A_CLIENT * self.model_bytes + batch
        total = torch.cuda.get_device_properties(self.execution.device).total_memory
        return int(np.clip(_CUDA_SHARE * total // client_bytes, 1, self._most))

    def shape_class(self, clients: Ints) -> Ints:
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
        clients: Ints,
        sequences: Ints,
        steps: Ints,
        phase: int,
    ) -> None:
        self._kernel, self.order, self.samples = kernel, kernel.order, kernel.samples
        self._clients, self._sequences, self._steps, self._phase = clients, sequences, steps, phase
        self.width = int(self.order.widths(clients[:1])[0]) if len(clients) else 0
        # What was drawn: sample numbers (S, b, width) and sizes (S, b) of the batches from step ``_first`` on.
        self._first, self._rows, self._sizes = 0, torch.empty(0), torch.empty(0)
        self._augmenter = augmenter = self.order.augmenter
        self._streams = augmenter.keys(clients, sequences, phase) if augmenter else torch.empty(0)

    def draw(self, step: int, active: int) -> tuple[Tensor, Tensor]:
        """Sample numbers (b, width) and sample counts (b,) of the first b = ``active`` dispatches at ``step``."""
        if step >= self._first + len(self._rows):
            ahead = max(1, _MOST_PLACES // (active * self.width))
            last = min(int(self._steps[0]), step + ahead)
            given = self._clients[:active], self._sequences[:active]
            draws = self._kernel.draws
            draws.records = padded = draws.records and self._kernel.replay.records
            plan = self.order.plan(*given, first=step, last=last, phase=self._phase, padded=padded)
            parts = draws(self._kernel.drawn, plan[:2], plan[2:])
            if padded:
                parts = tuple(part.clone() for part in parts)
            self._rows, self._labels, *self._further = parts
            self._first, self._sizes = step, plan[-1][1]
            self._on_draw()
        at = step - self._first
        return self._rows[at, :active], self._sizes[at, :active]

    def inputs(self, step: int, rows: Tensor, first: int = 0) -> Tensor:
        """Inputs of the samples ``rows`` (S, b, width), (S x b x width, *shape), augmented if requested.

        They are those of b dispatches from ``first`` on, at S steps from ``step`` on.
        """
        moves = None
        if self._augmenter is not None:
            steps, dispatches, width = rows.shape
            streams = self._streams[first : first + dispatches].repeat(steps)
            numbers = torch.arange(step, step + steps, device=rows.device)
            moves = self._augmenter.moves(streams, numbers.repeat_interleave(dispatches), width)
        return self.samples.gather(rows.reshape(-1), moves)

    def pieces(self, active: Ints) -> Iterator[tuple[slice, int, int]]:
        """Dispatches, and the first step that they take together and the one after the last; see :meth:`descend`."""
        kernel, begin, device = self._kernel, 0, self.samples.execution.device.type
        client_bytes, group_bytes, most = _PIECES[device]
        batch_bytes = self.width * self.samples.x[:1].numel() * kernel.execution.dtype.itemsize
        while begin < len(active):
            rows = int(active[begin])
            self.draw(begin, rows)
            end = min(self._first + len(self._labels), len(active))
            if kernel.client_by_client:
                end = min(end, begin + max(1, client_bytes // batch_bytes))
                for row, until in enumerate(np.minimum(self._steps[:rows], end).tolist()):
                    yield slice(row, row + 1), begin, until
            else:
                steps = min(most, max(1, group_bytes // (batch_bytes * rows)))
                end = min(end, begin + steps, int((active >= rows).sum()))
                if device == "cuda" and rows > active[-1]:
                    # Numbers of steps differ: powers of two, so that there are few recordings.
                    end = begin + (1 << (end - begin).bit_length() - 1)
                yield slice(0, rows), begin, end
            begin = end

    def dropout_seed(self, step: int, row: int) -> int:
        """Seed of the dropout masks of the dispatch ``row`` at ``step``, 63 bits."""
        keys = (int(self._clients[row]), int(self._sequences[row]), self._phase)
        return Stream(self.order.seed, Purpose.DROPOUT, *keys).hash(step) & _SEED_MASK

    def _on_draw(self) -> None:
        """Note what was drawn."""

    @staticmethod
    def prepared(kernel: Any, rows: Tensor, counts: Tensor) -> Sequence[Tensor]:
        """Labels of samples ``rows`` (S, b, width) in mini-batches of ``counts`` (S, b), and what else is needed."""
        return (kernel.samples.y[rows],)


class StackedSession(SupervisedSession[KernelType]):
    """Mini-batches of several dispatches, padded to one width."""

    @staticmethod
    def prepared(kernel: Any, rows: Tensor, counts: Tensor) -> Sequence[Tensor]:
        """Labels, and 1 / count for each sample, 0 for padding."""
        position = torch.arange(rows.shape[-1], device=rows.device)
        counts = counts.clamp(min=1).unsqueeze(2)
        mean_weights = (position < counts).to(kernel.execution.dtype) / counts
        return kernel.samples.y[rows], mean_weights

    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        kernel: Any = self._kernel
        batch = self.padded(step, len(weights))
        losses: Tensor = kernel.replay(kernel.differentiate, (weights, out), batch)
        return losses

    def descend(
        self, weights: Tensor, rates: Tensor, active: Ints, correction: Correction | None = None
    ) -> Tensor:
        """Plain steps; on CUDA, those of a piece are launched together if they are recorded."""
        kernel, on_cuda = self._kernel, weights.device.type == "cuda"
        losses, factors = weights.new_zeros(len(weights)), rates.neg().unsqueeze(1)
        correction = correction or Correction(weights, weights)
        # On a CPU, operations start sooner without the bookkeeping of autograd.
        with torch.inference_mode(not on_cuda):
            for rows, begin, end in self.pieces(active):
                models, total = weights[rows], losses[rows]
                given = factors[rows], *self.batches(rows, begin, end)
                if on_cuda:
                    total += kernel.replay(kernel.take_steps, (models,), given).sum(0)
                else:
                    # One by one, because the number of steps in a piece depends on the group.
                    losses_of = kernel.take_steps(models, *given, correction=correction.of(rows))
                    for step in losses_of:
                        total += step
                del given  # The next piece takes the memory of this one, which is in the cache.
        return losses

    def batches(self, rows: slice, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """The mini-batches of b dispatches at S steps.

        Inputs (S, b, width, *shape), labels (S, b, width), and the weight of each position in its batch's mean, (S, b,
        width).
        """
        self.draw(begin, rows.stop)
        at = slice(begin - self._first, end - self._first)
        samples, labels, mean_weights = (
            each[at, rows] for each in (self._rows, self._labels, *self._further)
        )
        inputs = self.inputs(begin, samples, first=rows.start)
        return inputs.view(*samples.shape, *inputs.shape[1:]), labels, mean_weights

    def padded(self, step: int, active: int) -> list[Tensor]:
        """:meth:`batches` of the first b = ``active`` dispatches at ``step``, without the axis of steps."""
        return [each[0] for each in self.batches(slice(0, active), step, step + 1)]
