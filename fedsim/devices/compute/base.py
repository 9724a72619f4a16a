"""The interface of compute models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.components import Component
from fedsim.devices.context import DeviceContext
from fedsim.traces.parameters import require_tables


class ComputeModel(Component, ABC):
    """How long a local step takes on each client's device; its ``Params`` derive from
    :class:`fedsim.devices.compute.variation.ComputeParams`.

    Attributes:
        needs_flops: whether step times follow from the operations of the model, which are then counted.
        redraws: whether a client's nominal step time may change from dispatch to dispatch.

    Raises:
        UserError: the trace bundle lacks a table that the parameters need.
    """

    needs_flops: ClassVar[bool] = False
    redraws: bool = False

    def __init__(self, params: Any, context: DeviceContext) -> None:
        require_tables(params, context.bundle, "devices.compute")
        self.params = params
        self.context = context

    @abstractmethod
    def step_s(self) -> npt.NDArray[np.float64]:
        """Nominal seconds of one local step of each client, (N,)."""

    def redrawn_step_s(self, client: int, sequence: int) -> float:
        """Nominal seconds of a local step in the ``sequence``-th dispatch, where :attr:`redraws`."""
        raise TypeError(f"{self.name} does not redraw step times")
