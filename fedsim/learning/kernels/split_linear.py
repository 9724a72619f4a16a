"""Hand-derived gradients of the binary linear model with its penalty, for all clients of a group at once."""

from __future__ import annotations

import copy
import itertools

import torch
from torch import Tensor
from torch.nn import functional

from fedsim.learning.kernels.supervised import StackedSession, SupervisedKernel
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.modules.networks import SplitLinear


class _SplitLinearSession(StackedSession["SplitLinearKernel"]):
    def gradients(self, step: int, weights: Tensor, out: Tensor) -> Tensor:
        features = self._kernel.features
        inputs, labels, mean_weights = self.padded(step, len(weights))
        x = self._kernel.module.arranged(inputs.flatten(0, 1)).view(*labels.shape, features)
        targets = self._kernel.task.loss.targets(labels).to(x.dtype)
        logits = torch.bmm(weights[:, :features].unsqueeze(1), x.transpose(1, 2)).squeeze(1)
        if self._kernel.biased:
            logits = logits + weights[:, features : features + 1]
        losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        mean = (losses * mean_weights).sum(1)
        # Not torch.sigmoid, whose last bit depends on the position of a number in the tensor.
        residual = (1 / (1 + torch.exp(-logits)) - targets).mul_(mean_weights)
        out[:, :features] = torch.bmm(residual.unsqueeze(1), x).squeeze(1)
        if self._kernel.biased:
            out[:, features] = residual.sum(1)
        rho = self._kernel.task.loss.penalty
        if rho:
            for part in self._kernel.parts:
                w = weights[:, part]
                square = w.square().sum(1)
                mean += rho * square / (1 + square)
                out[:, part].addcmul_(w, (2 * rho / (1 + square).square()).unsqueeze(1))
        return self._kernel.reported(mean, losses, mean_weights)


class SplitLinearKernel(SupervisedKernel):
    """Batched products with hand-derived gradients, for the model ``linear`` with logistic loss and penalty."""

    name = "split_linear"
    revision = 1
    group_invariant = True
    session_class = _SplitLinearSession

    def prepare(self) -> None:
        """Locate the parts of the vector, and copy the module, which arranges features."""
        module, layout = self.task.module, self.task.layout
        assert isinstance(module, SplitLinear)
        self.parts = [slice(start, end) for start, end in itertools.pairwise(layout.offsets)]
        self.biased = layout.names[-1] == "bias"
        self.features = layout.size - int(self.biased)
        self.module = copy.deepcopy(module).to(self.execution.device)

    @staticmethod
    def fits(task: SupervisedTask) -> bool:
        """Whether the kernel supports the task's model and loss."""
        return isinstance(task.module, SplitLinear) and task.loss.kind == "logistic"
