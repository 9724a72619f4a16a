"""Step times from the model's counted operations and the device's speed in operations per second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel, ComputeParams, ComputeTable
from fedsim.errors import UserError
from fedsim.network.columns import require_known
from fedsim.randomness import Purpose
from fedsim.units import Duration


class FlopsParams(ComputeParams):
    """Parameters of step times from counted operations."""

    flops_per_s: float = Field(default=1e10, gt=0)
    """Floating-point operations per second in training on the median device."""
    sigma: float = Field(default=0.78, ge=0)
    """Standard deviation over clients of the logarithm of the speed; 0.78 matches phones."""
    limit: float = Field(default=8.0, gt=1)
    """Largest ratio to the median, in either direction."""
    fixed: Duration = 0.0
    """Fixed part of a step on the median device."""
    speed: Literal["drawn", "bundle"] = "drawn"
    """Speed of a device relative to the median one: drawn (lognormal), or the bundle's relative_speed."""

    def needs_tables(self) -> Mapping[str, str]:
        """The bundle's speeds, unless they are drawn."""
        return {"compute": "use speed: drawn"} if self.speed == "bundle" else {}


class Flops(ComputeModel):
    """(fixed + batch samples x operations per sample / flops_per_s) / relative speed of the device.

    The operations of a forward and a backward pass are counted once on the model (a multiply-add is two).
    """

    name = "flops"
    needs_flops = True
    Params = FlopsParams

    def step_s(self) -> npt.NDArray[np.float64]:
        """Time on the median device over relative speed."""
        context, params = self.context, self.params
        if context.flops_per_sample is None:
            raise UserError(
                "the number of operations of a training step is unknown",
                where="devices.compute",
                hint="give task.flops_per_sample, or another compute model",
            )
        median_s = (
            params.fixed + context.batch_samples * context.flops_per_sample / params.flops_per_s
        )
        result: npt.NDArray[np.float64] = median_s / self._speeds()
        return result

    def _speeds(self) -> npt.NDArray[np.float64]:
        """Speed of each client's device relative to the median one, (N,)."""
        context, params = self.context, self.params
        speed: npt.NDArray[np.float64]
        if params.speed == "bundle":
            speed = ComputeTable(context).column("relative_speed")
            hint = "use another bundle, or speed: drawn"
            require_known(speed, "relative_speed", "devices.compute.speed", hint, context)
            return speed
        from scipy.special import ndtri

        u = context.stream(Purpose.COMPUTE_PROFILE).uniforms(np.arange(context.clients))
        speed = np.clip(np.exp(params.sigma * ndtri(u)), 1 / params.limit, params.limit)
        return speed
