"""Hand-derived gradients of linear layers with ReLU between them, for all clients of a group at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsim.learning.batches import Batches, BatchOrder
from fedsim.learning.device import Execution
from fedsim.learning.kernels.base import IntArray
from fedsim.learning.kernels.linear_layers import layers_of, views
from fedsim.learning.kernels.linear_steps import PYTHON_STEPS, compiled
from fedsim.learning.kernels.supervised import StackedKernel, SupervisedSession, place_weights
from fedsim.learning.samples import Samples
from fedsim.tasks.kinds.supervised import SupervisedTask

# On CPU, larger models take plain steps client by client; for smaller ones the calls would dominate.
_SINGLE_BYTES = 384 << 10
# Bytes of one client's samples that are gathered together; they share the cache with the model.
_PIECE_BYTES = 1 << 20


class _LinearStackSession(SupervisedSession["LinearStackKernel"]):
    def _on_draw(self, drawn: Batches) -> None:
        super()._on_draw(drawn)
        self._dtype = self._kernel.execution.dtype
        self._labels = self._labels.unsqueeze(2)
        self._place_weights = place_weights(drawn, self.width, self._dtype).unsqueeze(2)

    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        kernel = self._kernel
        return kernel.replay(
            kernel.differentiate, (weights, out), self._mini_batches(step, len(weights))
        )

    def descend(self, weights: Tensor, rates: Tensor, active: IntArray) -> Tensor:
        if self._kernel.client_by_client:
            return self._descend_singly(weights, rates)
        kernel = self._kernel
        losses = weights.new_zeros(len(weights))
        factors = rates.neg().view(-1, 1, 1)
        for step, rows in enumerate(active.tolist()):
            losses[:rows] += kernel.replay(
                kernel.descend, (weights[:rows],), (*self._mini_batches(step, rows), factors[:rows])
            )
        return losses

    def _mini_batches(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inputs, labels, weights of places and classes as :func:`linear_steps.forward` takes them."""
        rows, _ = self.draw(step, active)
        inputs = self.inputs(step, rows, scratch=self._kernel.scratch)
        at = step - self._first
        return (
            inputs.view(active, self.width, -1),
            self._labels[at, :active],
            self._place_weights[at, :active],
            self._kernel.classes,
        )

    def _descend_singly(self, weights: Tensor, rates: Tensor) -> Tensor:
        # Summed one by one, because the number of steps drawn at once depends on the group.
        losses = [0.0] * len(weights)
        dtype = self._kernel.execution.dtype
        batch_bytes = self.width * self._kernel.layers[0].shape[1] * dtype.itemsize
        piece = max(1, _PIECE_BYTES // batch_bytes)
        begin, most = 0, int(self._steps[0])
        while begin < most:
            self.draw(begin, int((self._steps > begin).sum()))
            assert self._drawn is not None
            drawn_to = begin + len(self._drawn.rows)
            for row, rate in enumerate(rates[: self._drawn.rows.shape[1]].tolist()):
                model = views(self._kernel.layers, weights[row])
                until = min(drawn_to, int(self._steps[row]))
                for first in range(begin, until, piece):
                    at = slice(first - begin, min(first + piece, until) - begin)
                    inputs = self.inputs_ahead(
                        first,
                        self._drawn.rows[at, row],
                        dispatch=row,
                        scratch=self._kernel.scratch,
                    )
                    for loss in self._descend_piece(model, row, at, inputs, rate):
                        losses[row] += loss
            begin = drawn_to
        return weights.new_tensor(losses)

    # A step has two dozen small operations, which start sooner without the bookkeeping of autograd. Tensors made here
    # cannot be used elsewhere.
    @torch.inference_mode()
    def _descend_piece(
        self,
        model: tuple[list[Tensor], list[Tensor | None]],
        row: int,
        at: slice,
        inputs: Tensor,
        rate: float,
    ) -> list[float]:
        """The steps ``at`` of those drawn, of one dispatch; mini-batch losses before each."""
        labels = self._labels[at, row].transpose(1, 2)
        places = self._place_weights[at, row].transpose(1, 2)
        outputs = inputs.new_empty(len(labels), self.width, len(self._kernel.classes))
        self._kernel.steps.descend_singly(
            *model,
            inputs.view(-1, self.width, self._kernel.layers[0].shape[1]),
            (labels == self._kernel.classes.view(-1)).to(self._dtype),
            places * -rate,
            outputs,
            *self._work_space(),
        )
        log_shares = torch.log_softmax(outputs, 2)
        losses = -(log_shares.gather(2, labels) * places).sum((1, 2))
        numbers: list[float] = losses.tolist()
        return numbers

    def _work_space(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Activations, deltas and ones for :func:`linear_steps.descend_singly`."""
        hidden = [layer.shape[0] for layer in self._kernel.layers[:-1]]
        activations = [torch.empty(self.width, size, dtype=self._dtype) for size in hidden]
        deltas = [torch.empty(self.width, size, dtype=self._dtype) for size in hidden]
        return activations, deltas, torch.ones(self.width, dtype=self._dtype)


class LinearStackKernel(StackedKernel):
    """Batched matrix products with hand-derived gradients, for logistic regression and multi-layer perceptrons.

    For tasks of the families ``linear`` and ``mlp`` with cross-entropy.
    """

    name = "linear_stack"
    revision = 2
    group_invariant = True
    fused = True
    recorded = True
    session_class = _LinearStackSession

    def __init__(
        self, task: SupervisedTask, samples: Samples, order: BatchOrder, execution: Execution
    ) -> None:
        super().__init__(task, samples, order, execution)
        self.layers = layers_of(task.layout)
        self.classes = torch.arange(self.layers[-1].shape[0], device=execution.device).unsqueeze(1)
        self.scratch: dict[str, Tensor] = {}
        # On CUDA TorchScript would fuse operations after a few calls, and change the last bit.
        self.steps = PYTHON_STEPS if execution.device.type == "cuda" else compiled()

    def differentiate(
        self,
        weights: Tensor,
        out: Tensor,
        inputs: Tensor,
        labels: Tensor,
        places: Tensor,
        classes: Tensor,
    ) -> Tensor:
        """:func:`linear_steps.gradients_together` on local models and gradients (b, P)."""
        return self.steps.gradients_together(
            *views(self.layers, weights), inputs, labels, places, classes, *views(self.layers, out)
        )

    def descend(
        self,
        weights: Tensor,
        inputs: Tensor,
        labels: Tensor,
        places: Tensor,
        classes: Tensor,
        factors: Tensor,
    ) -> Tensor:
        """:func:`linear_steps.descend_together` on local models (b, P)."""
        return self.steps.descend_together(
            *views(self.layers, weights), inputs, labels, places, classes, factors
        )

    @property
    def client_by_client(self) -> bool:
        """Whether plain steps are taken client by client."""
        on_cpu = self.execution.device.type == "cpu"
        return on_cpu and self.model_bytes > _SINGLE_BYTES
