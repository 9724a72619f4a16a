"""Explicit step times, for worked examples and known machines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.devices.compute.base import ComputeModel, ComputeParams
from fedsim.errors import UserError
from fedsim.units import Duration
from fedsim.vocabulary.formatting import format_counted


class ValuesParams(ComputeParams):
    """Parameters of explicit step times."""

    step: Duration | list[Duration]
    """Time of one local step: one for all clients, or one per client."""


class Values(ComputeModel):
    """The same step time for all clients, or one per client."""

    name = "values"
    Params = ValuesParams

    def step_s(self) -> npt.NDArray[np.float64]:
        """The given times."""
        step, clients = self.params.step, self.context.clients
        if isinstance(step, list) and len(step) != clients:
            raise UserError(
                f"{format_counted(len(step), 'step time')} for {format_counted(clients, 'client')}",
                where="devices.compute.step",
                hint="give one for all, or one per client",
            )
        return np.broadcast_to(np.asarray(step, dtype=np.float64), (clients,)).copy()
