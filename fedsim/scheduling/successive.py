"""Successive draws in proportion to weights, without replacement."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def weighted_order(
    generator: np.random.Generator,
    clients: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
) -> list[int]:
    """Clients of positive weight in the order of successive draws, each in proportion to the weights that are left.

    (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006: order by exponential times / weight.)
    """
    positive = weights > 0
    times = generator.exponential(size=len(clients))[positive] / weights[positive]
    order: list[int] = clients[positive][np.argsort(times, kind="stable")].tolist()
    return order
