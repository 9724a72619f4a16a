"""Parts of aggregation rules that several methods share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import MethodContext, ServerState, Tensor, Updates, averaging_weights

if TYPE_CHECKING:
    from fedsim.tasks.layout import Layout


def with_mean_buffers(
    model: Tensor,
    server: ServerState,
    updates: Updates,
    layout: Layout,
    *,
    vector: str = "delta",
    weights: Literal["samples", "uniform"] = "uniform",
) -> Tensor:
    """``model`` (P,) with plainly averaged buffers, for rules that apply to trainable parameters only.

    Buffers (running statistics of normalization layers) have no gradient: scaled, amplified or corrected changes would
    make them meaningless. Changes ``model`` in place.

    Args:
        model: the new model.
        server: the state before.
        updates: the contributions; entries of ``vector`` beyond the trainable ones are changes of the buffers.
        layout: of the model.
        vector: the vector sent up that holds those changes.
        weights: of the average.
    """
    if layout.trainable == layout.size:
        return model
    buffers = server["model"][layout.trainable :].clone()
    for index, weight in enumerate(averaging_weights(updates, weights).tolist()):
        buffers.add_(updates.row(vector, index)[layout.trainable :], alpha=weight)
    model[layout.trainable :] = buffers
    return model


def with_moved_buffers(
    model: Tensor, server: ServerState, change: Tensor, layout: Layout
) -> Tensor:
    """``model`` (P,) with buffers that moved by ``change`` (P,), for servers that scale or accumulate changes.

    With a momentum, or a server learning rate above 1, a running variance would move beyond the clients' values, even
    below zero, and the model would have no finite outputs.
    """
    if layout.trainable == layout.size:
        return model
    import torch

    buffers = server["model"][layout.trainable :] + change[layout.trainable :]
    return torch.cat([model[: layout.trainable], buffers])


def local_rate(context: MethodContext, updates: Updates) -> float:
    """The local learning rate of this server update, for server steps that are proportional to it.

    The rate of the contribution dispatched last; without contributions, that of the round being closed.
    """
    if not len(updates):
        return context.learning_rate(updates.round, updates.time_s)
    return float(updates.learning_rates[np.argmax(updates.versions)])


def distance_covered(
    context: MethodContext, steps: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Distance that this many local SGD steps cover along a constant unit gradient at learning rate 1, (C,).

    The number of steps without momentum; with momentum the sum of the coefficients with which the gradients enter the
    change (a_i of Wang et al., NeurIPS 2020, section 4).
    """
    momentum, nesterov = context.sgd_momentum
    if not momentum:
        return steps.astype(np.float64)
    covered = np.zeros(int(steps.max()) + 1)
    velocity = 0.0
    for step in range(1, len(covered)):
        velocity = momentum * velocity + 1
        covered[step] = covered[step - 1] + (1 + momentum * velocity if nesterov else velocity)
    result: npt.NDArray[np.float64] = covered[steps]
    return result
