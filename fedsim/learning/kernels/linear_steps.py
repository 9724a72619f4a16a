"""Explicit forward and backward passes of linear layers with ReLU between them and cross-entropy.

The functions are compiled by TorchScript. Compiled functions release Python's global lock, so worker threads run in
parallel and small operations start sooner; the results are the same as without compilation.
Weights are (..., out, in) and biases (..., out) or None, views of flat vectors, first layer to last. Of b clients,
``inputs`` are (b, width, features), ``labels`` (b, 1, width), ``mean_weights``, the weight of each position in its
batch's mean, (b, 1, width), and ``classes`` the numbers 0, 1, ... (classes, 1). Losses are those of mini-batches, (b,),
or, with ``squared_losses``, sums of the squared losses of the samples.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedsim.learning.kernels.base import pull, shift

ONEDNN_FROM = 1 << 17
"""Entries of a weight from which oneDNN multiplies faster than torch's BLAS, on CPUs with AVX-512 (measured on an AMD
EPYC, whose wide registers MKL does not use)."""

if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]

    def onednn_product(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``values @ weight.T + bias`` by oneDNN, in float32."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(values, weight, bias, "none", [], "")
        return product

else:
    onednn_product = torch.nn.functional.linear  # type: ignore[assignment]


def descend_singly(
    layers: list[tuple[int, int, int, int]],
    inputs: Tensor,
    targets: Tensor,
    factors: Tensor,
    outputs: Tensor,
    activations: list[Tensor],
    deltas: list[Tensor],
    ones: Tensor,
    onednn_from: int,
    model: Tensor,
    target: Tensor | None,
    share: float,
    constant: Tensor | None,
    rate: float,
    start: Tensor,
    change: Tensor,
) -> None:
    """S local steps of plain SGD of one client, in place in ``model`` (P,).

    Args:
        layers: positions of weights and biases, as in :class:`fedsim.learning.kernels.linear_stack.LinearLayer`.
        inputs: samples of each step, (S, width, features).
        targets: 1 for the label's class, else 0, (S, width, classes).
        factors: weight of each position in its batch's mean times minus the learning rate, (S, width, 1).
        outputs: receives the logits before each step, (S, width, classes).
        activations, deltas: work space for each layer but the last, (width, out).
        target, share, constant, rate, start, change: a :class:`fedsim.learning.kernels.base.ClientCorrection`.
    """
    last = len(layers) - 1
    weights: list[Tensor] = []
    for at, rows, columns, _ in layers:
        weights.append(model[at : at + rows * columns].view(rows, columns))
    for step in range(len(inputs)):
        values = inputs[step]
        for index in range(last + 1):
            out = activations[index] if index < last else outputs[step]
            _, rows, _, bias_at = layers[index]
            bias = None if bias_at < 0 else model[bias_at : bias_at + rows]
            if index < last and weights[index].numel() >= onednn_from:
                out = onednn_product(values, weights[index], bias)
                activations[index] = out
            elif bias is None:
                torch.mm(values, weights[index].t(), out=out)
            else:
                torch.addmm(bias, values, weights[index].t(), out=out)
            if index < last:
                values = out.relu_()
        # Gradients are linear in the last layer's deltas: scaled here, products add straight to the weights.
        top = torch.softmax(outputs[step], 1).sub_(targets[step]).mul_(factors[step])
        # The deltas below need the weights before the step.
        for index in range(last, 0, -1):
            delta = top if index == last else deltas[index]
            if weights[index].numel() >= onednn_from:
                below = onednn_product(delta, weights[index].t(), None)
                deltas[index - 1] = below
            else:
                below = torch.mm(delta, weights[index], out=deltas[index - 1])
            # Torch's derivative of ReLU: the incoming delta if the unit was positive, else zero.
            torch.ops.aten.threshold_backward(below, activations[index - 1], 0, grad_input=below)
        pull(model, target, share)
        for index in range(last, -1, -1):
            upward = (top if index == last else deltas[index]).t()
            values = activations[index - 1] if index > 0 else inputs[step]
            at, rows, columns, bias_at = layers[index]
            change[at : at + rows * columns].view(rows, columns).addmm_(upward, values)
            if bias_at >= 0:
                change[bias_at : bias_at + rows].addmv_(upward, ones)
        shift(model, constant, rate, start, change)


def descend_together(
    weights: list[Tensor],
    biases: list[Tensor | None],
    inputs: Tensor,
    labels: Tensor,
    mean_weights: Tensor,
    classes: Tensor,
    rates: Tensor,
    model: Tensor,
    moved_weights: list[Tensor],
    moved_biases: list[Tensor | None],
    target: Tensor | None,
    strength: float,
    constant: Tensor | None,
    start: Tensor,
    change: Tensor,
    squared_losses: bool,
) -> Tensor:
    """One local step of plain SGD of each of b clients, in place in ``model`` (b, P); returns the losses before it.

    ``rates`` are minus the learning rates, (b, 1, 1); ``moved_weights`` and ``moved_biases`` are views of ``change``.
    """
    loss, delta, activations = forward(
        weights, biases, inputs, labels, mean_weights, classes, squared_losses
    )
    # Gradients are linear in the last layer's deltas: scaled here, products add straight to the weights.
    delta.mul_(rates)
    deltas = [delta]
    # The deltas below need the weights before the step.
    for index in range(len(weights) - 1, 0, -1):
        delta = _back(weights[index], delta, activations[index])
        deltas.append(delta)
    if target is not None:
        model.lerp_(target, rates.squeeze(2) * -strength)
    for index in range(len(weights)):
        delta = deltas[-1 - index]
        moved_weights[index].baddbmm_(delta, activations[index].transpose(1, 2))
        bias = moved_biases[index]
        if bias is not None:
            bias.add_(delta.sum(2))
    if constant is not None:
        change.addcmul_(constant, rates.squeeze(2))
        torch.add(start, change, out=model)
    return loss


def gradients_together(
    weights: list[Tensor],
    biases: list[Tensor | None],
    inputs: Tensor,
    labels: Tensor,
    mean_weights: Tensor,
    classes: Tensor,
    weight_gradients: list[Tensor],
    bias_gradients: list[Tensor | None],
    squared_losses: bool,
) -> Tensor:
    """Write the mini-batch gradients of b clients into the last two lists; returns the losses."""
    loss, delta, activations = forward(
        weights, biases, inputs, labels, mean_weights, classes, squared_losses
    )
    for index in range(len(weights) - 1, -1, -1):
        values = activations[index]
        torch.bmm(delta, values.transpose(1, 2), out=weight_gradients[index])
        bias = bias_gradients[index]
        if bias is not None:
            torch.sum(delta, [2], out=bias)
        if index > 0:
            delta = _back(weights[index], delta, values)
    return loss


def forward(
    weights: list[Tensor],
    biases: list[Tensor | None],
    inputs: Tensor,
    labels: Tensor,
    mean_weights: Tensor,
    classes: Tensor,
    squared_losses: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Losses, their gradients with respect to the logits (b, classes, width), and the inputs of every layer.

    All activations are kept transposed, (b, features, width): products with few outputs are then twice as fast on
    CPU.
    """
    values = inputs.transpose(1, 2)
    activations: list[Tensor] = []
    for index in range(len(weights)):
        activations.append(values)
        bias = biases[index]
        if bias is None:
            values = torch.bmm(weights[index], values)
        else:
            values = torch.baddbmm(bias.unsqueeze(2), weights[index], values)
        if index + 1 < len(weights):
            values.relu_()
    log_shares = torch.log_softmax(values, 1)
    loss = reduced(-log_shares.gather(1, labels), mean_weights, squared_losses)
    delta = log_shares.exp_()
    delta.add_(labels == classes, alpha=-1)
    return loss, delta.mul_(mean_weights), activations


def reduced(losses: Tensor, mean_weights: Tensor, squared: bool) -> Tensor:
    """Weighted sums of losses (b, m, n), or sums of squares of those with a positive weight; (b,)."""
    if squared:
        return (losses.square() * mean_weights.sign()).sum((1, 2))
    return (losses * mean_weights).sum((1, 2))


def _back(weight: Tensor, delta: Tensor, values: Tensor) -> Tensor:
    """Deltas of a layer's inputs ``values``, which are outputs of a ReLU."""
    below = torch.bmm(weight.transpose(1, 2), delta)
    return below.mul_(values > 0)


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions of this module that sessions use."""

    descend_singly: Callable[..., None]
    descend_together: Callable[..., Tensor]
    gradients_together: Callable[..., Tensor]


PYTHON_STEPS = Steps(descend_singly, descend_together, gradients_together)


@cache
def compiled() -> Steps:
    """The functions compiled by TorchScript, or uncompiled if it is not available."""
    script: Callable[[Any], Any] | None = getattr(torch.jit, "script", None)
    # Not supported by torch from Python 3.14 on.
    if script is None or sys.version_info >= (3, 14):
        return PYTHON_STEPS
    with warnings.catch_warnings():
        # torch.compile, which the warning recommends, needs a compiler on the user's machine.
        warnings.simplefilter("ignore", DeprecationWarning)
        return Steps(script(descend_singly), script(descend_together), script(gradients_together))
