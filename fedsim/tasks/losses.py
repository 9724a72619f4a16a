"""Loss functions of supervised tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """A training loss: the mean over samples of a per-sample loss, and possibly a penalty on the parameters.

    Attributes:
        kind: ``cross_entropy`` on (n, classes) outputs; ``logistic`` on (n, 1) or (n,) outputs: log(1 + exp(-c z)) with
            c = +1 for the ``positive`` labels and -1 for the others; or ``squared`` on (n, 1) or (n,) outputs:
            (z - y)^2, whose mean is the mean squared error (MSE).
        positive: labels that count as +1 (``logistic`` only).
        penalty: rho of the non-convex penalty rho x sum over parameter tensors w of ||w||^2 / (1 + ||w||^2)
            (Chen et al., Sharper Convergence Guarantees for Federated Learning with Partial Model
            Personalization, section 5).
    """

    kind: Literal["cross_entropy", "logistic", "squared"] = "cross_entropy"
    positive: tuple[int, ...] = ()
    penalty: float = 0.0

    def targets(self, labels: Tensor) -> Tensor:
        """Labels as the loss uses them, (n,): unchanged, or 1 for positive and 0 for other labels."""
        if self.kind != "logistic":
            return labels
        import torch

        return torch.isin(labels, torch.tensor(self.positive, device=labels.device)).long()

    def per_sample(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Loss of each sample without penalty, (n,), from outputs (n, outputs) or (n,) and data set labels (n,)."""
        from torch.nn import functional

        if self.kind == "cross_entropy":
            return functional.cross_entropy(outputs, labels, reduction="none")
        if self.kind == "squared":
            return (outputs.reshape(labels.shape) - labels.to(outputs.dtype)).square()
        return functional.binary_cross_entropy_with_logits(
            outputs.reshape(labels.shape),
            self.targets(labels).to(outputs.dtype),
            reduction="none",
        )

    def penalties(self, parameters: Iterable[Tensor]) -> Tensor:
        """The penalty of a model's parameter tensors, scalar."""
        import torch

        squares = [parameter.square().sum() for parameter in parameters]
        return self.penalty * torch.stack([square / (1 + square) for square in squares]).sum()

    def predictions(self, outputs: Tensor) -> Tensor:
        """Predicted classes, numbered as by :meth:`targets`, (n,) int64."""
        if self.kind == "cross_entropy":
            return outputs.argmax(dim=-1)
        return (outputs.reshape(len(outputs)) > 0).long()
