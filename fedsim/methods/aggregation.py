"""Parts of aggregation rules that several methods share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import MethodContext, Updates


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
