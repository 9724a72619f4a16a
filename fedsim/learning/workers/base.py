"""The groups of dispatches that workers train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.contract import Named
from fedsim.learning.device import Execution, uploaded
from fedsim.methods.base import Cohort
from fedsim.vocabulary.timeline import Train

IntArray = npt.NDArray[np.int64]


class Group(NamedTuple):
    """Dispatches that are trained together, and what makes a cohort of them, or of some, on the device of a worker."""

    trains: Sequence[Train]
    cohort: Callable[[Sequence[Train], Execution], Cohort]


def cohort_of(
    trains: Sequence[Train],
    execution: Execution,
    *,
    samples: IntArray,
    rates: Sequence[float],
    down: Mapping[str, Sequence[Tensor]],
    memory: Mapping[str, Tensor],
    in_place: Mapping[str, list[Tensor]] = {},
) -> Cohort:
    """The cohort of B dispatches on a device.

    Args:
        trains, execution: the dispatches, and the device.
        samples: training samples of their clients, (B,).
        rates: local learning rate of each.
        down: the vector (elements,) that each received, by name; those of one version are one object.
        memory, in_place: as those of the cohort.
    """
    device = execution.device
    return Cohort(
        clients=np.array([train.client for train in trains]),
        sequences=np.array([train.sequence for train in trains]),
        versions=np.array([train.version for train in trains]),
        rounds=np.array([train.round for train in trains]),
        steps=np.array([train.steps for train in trains]),
        steps_assigned=np.array([train.steps_assigned for train in trains]),
        samples=samples,
        in_full=np.array([train.in_full or not train.sequence for train in trains]),
        learning_rates=uploaded(np.array(rates), device).to(execution.dtype),
        down=Named((name, _matrix(received, device)) for name, received in down.items()),
        memory=Named((name, rows.to(device)) for name, rows in memory.items()),
        in_place=in_place,
    )


def _matrix(received: Sequence[Tensor], device: torch.device) -> Tensor:
    """The vectors as rows on a device; not a copy if all are one object, which is there already."""
    moved = {id(vector): vector for vector in received}
    moved = {key: vector.to(device) for key, vector in moved.items()}
    if len(moved) == 1:
        return moved[id(received[0])].expand(len(received), -1)
    return torch.stack([moved[id(vector)] for vector in received])
