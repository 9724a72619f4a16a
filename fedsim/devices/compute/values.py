"""Step times written down, for worked examples and known machines."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.devices.compute.base import ComputeModel
from fedsim.devices.compute.variation import ComputeParams
from fedsim.errors import UserError
from fedsim.units import Duration


class ValuesParams(ComputeParams):
    """Parameters of written-down step times."""

    step: Duration | list[Duration]
    """Time of one local step: one for all clients, or one a client."""


class Values(ComputeModel):
    """The same step time for all clients, or one for each."""

    name: ClassVar[str] = "values"
    Params = ValuesParams

    def step_s(self) -> npt.NDArray[np.float64]:
        """See :meth:`fedsim.devices.compute.base.ComputeModel.step_s`."""
        step, clients = self.params.step, self.context.clients
        if isinstance(step, list) and len(step) != clients:
            raise UserError(
                f"{len(step)} step times for {clients} clients",
                where="devices.compute.step",
                hint="give one for all, or one a client",
            )
        return np.broadcast_to(np.asarray(step, dtype=np.float64), (clients,)).copy()
