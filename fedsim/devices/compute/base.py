"""The interface of compute models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.components import Component
from fedsim.devices.context import DeviceContext


class ComputeModel(Component, ABC):
    """How long a local step takes on each client's device; its ``Params`` derive from
    :class:`fedsim.devices.compute.variation.ComputeParams`.

    Attributes:
        redraws: whether a client's nominal step time may change from dispatch to dispatch.
    """

    redraws: bool = False

    def __init__(self, params: Any, context: DeviceContext) -> None:
        self.params = params
        self.context = context

    @abstractmethod
    def step_s(self) -> npt.NDArray[np.float64]:
        """Nominal seconds of one local step of each client, (N,)."""

    def redrawn_step_s(self, client: int, sequence: int) -> float:
        """Nominal seconds of a local step in the ``sequence``-th dispatch, where :attr:`redraws`."""
        raise TypeError(f"{self.name} does not redraw step times")
