"""The training objective and its gradient over all training samples, for studies of convergence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.kernels.loop import BoundModules
from fedsim.learning.samples import Samples

_CPU_BATCH = 2048
_CUDA_BATCH = 8192


class Objective:
    """f, the mean over clients i of f_i: the mean loss of i's training samples plus the penalty, if any.

    Clients have equal weights, regardless of their number of samples; those without samples do not count. Normalization
    layers and dropout work as in evaluation.
    """

    def __init__(self, samples: Samples) -> None:
        self._task, execution = samples.task, samples.execution
        task = self._task
        self._samples = samples
        self._device = execution.device
        self._batch = _CUDA_BATCH if execution.device.type == "cuda" else _CPU_BATCH
        counts = np.diff(task.offsets)
        self._clients = np.flatnonzero(counts).tolist()
        weights = np.repeat(1 / (len(self._clients) * np.maximum(counts, 1)), counts)
        self._rows = torch.from_numpy(task.rows).to(execution.device)
        self._weights = torch.from_numpy(weights).to(execution.device, execution.dtype)
        self._modules = BoundModules(task, execution)

    def measure(self, model: Tensor) -> dict[str, float]:
        """``objective_loss``, f of one model (P,), and ``gradient_norm_squared``, the squared norm of its gradient."""
        value, gradient = self._over(model, self._rows, self._weights)
        return _metrics(value, gradient)

    def measure_split(
        self, model_of: Callable[[int], Tensor], personal: Sequence[str]
    ) -> dict[str, float]:
        """The same for models with personal tensors; ``model_of`` returns the model (P,) of each client.

        ``gradient_norm_squared`` is ||(1/N) sum over i of the gradient of f_i with respect to the shared part||^2 (G_u
        in Chen et al., arXiv:2309.17409), and ``personal_gradient_norm_squared`` is (1/N) sum over i of ||the gradient
        of f_i with respect to i's personal part||^2 (G_v).
        """
        layout = self._task.layout
        mask = layout.mask(personal)[: layout.trainable].to(self._device)
        shared = torch.zeros(layout.trainable, dtype=self._weights.dtype, device=self._device)
        value, personal_squared = 0.0, 0.0
        offsets, count = self._task.offsets, len(self._clients)
        for client in self._clients:
            positions = slice(int(offsets[client]), int(offsets[client + 1]))
            loss, gradient = self._over(
                model_of(client), self._rows[positions], count * self._weights[positions]
            )
            value += loss / count
            personal_squared += float(gradient[mask].square().sum(dtype=torch.float64)) / count
            shared += gradient / count
        metrics = _metrics(value, shared.masked_fill(mask, 0))
        return {**metrics, "personal_gradient_norm_squared": personal_squared}

    def _over(self, model: Tensor, rows: Tensor, weights: Tensor) -> tuple[float, Tensor]:
        """Weighted sum of the losses of ``rows`` plus the penalty, and its gradient in the trainable parameters."""
        loss = self._task.loss
        value = torch.zeros((), dtype=torch.float64, device=self._device)
        total = torch.zeros(self._task.layout.trainable, dtype=model.dtype, device=self._device)
        with self._modules.at(model) as bound, torch.enable_grad():
            for start in range(0, len(rows), self._batch):
                batch = rows[start : start + self._batch]
                outputs = bound.forward(self._samples.gather(batch))
                losses = loss.per_sample(outputs, self._samples.y[batch])
                summed = (losses * weights[start : start + self._batch]).sum()
                if loss.penalty and start == 0:
                    summed = summed + loss.penalties(bound.parameters)
                gradients = torch.autograd.grad(summed, bound.parameters)
                total += torch.cat([gradient.reshape(-1) for gradient in gradients])
                value += summed.detach()
        return float(value), total


def _metrics(value: float, gradient: Tensor) -> dict[str, float]:
    squared = float(gradient.square().sum(dtype=torch.float64))
    return {"objective_loss": value, "gradient_norm_squared": squared}
