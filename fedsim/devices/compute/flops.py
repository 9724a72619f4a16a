"""Step times from the model's counted operations and the device's speed in operations per second."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel
from fedsim.devices.compute.table import ComputeTable
from fedsim.devices.compute.variation import ComputeParams
from fedsim.errors import UserError
from fedsim.randomness import Purpose
from fedsim.units import Duration


class FlopsParams(ComputeParams):
    """Parameters of step times from counted operations."""

    flops_per_s: float = Field(default=1e10, gt=0)
    """Floating-point operations per second that training reaches on the median device."""
    sigma: float = Field(default=0.78, ge=0)
    """Standard deviation over clients of the logarithm of the speed; 0.78 fits phones."""
    limit: float = Field(default=8.0, gt=1)
    """Largest factor away from the median, either side."""
    fixed: Duration = 0.0
    """Fixed part of a step on the median device."""
    speed: Literal["drawn", "bundle"] = "drawn"
    """Speed of a device relative to the median one: drawn (lognormal), or the bundle's relative_speed."""
    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file; client and device are paired by row."""


class Flops(ComputeModel):
    """(fixed + samples of a batch x operations of a sample / speed), over the device's relative speed.

    The operations of a forward and a backward pass are counted once on the model (a multiply-add is two).
    """

    name: ClassVar[str] = "flops"
    Params = FlopsParams

    def step_s(self) -> npt.NDArray[np.float64]:
        """See :meth:`fedsim.devices.compute.base.ComputeModel.step_s`."""
        context, params = self.context, self.params
        if context.flops_per_sample is None:
            raise UserError(
                "the operations of a training step are not known",
                where="devices.compute",
                hint="give task.flops_per_sample, or another compute model",
            )
        speed = self._bundle_speeds() if params.speed == "bundle" else self._drawn_speeds()
        median_s = (
            params.fixed + context.batch_samples * context.flops_per_sample / params.flops_per_s
        )
        result: npt.NDArray[np.float64] = median_s / speed
        return result

    def _drawn_speeds(self) -> npt.NDArray[np.float64]:
        from scipy.special import ndtri

        context, params = self.context, self.params
        u = context.stream(Purpose.COMPUTE_PROFILE).uniforms(np.arange(context.clients))
        speed: npt.NDArray[np.float64] = np.clip(
            np.exp(params.sigma * ndtri(u)), 1 / params.limit, params.limit
        )
        return speed

    def _bundle_speeds(self) -> npt.NDArray[np.float64]:
        bundle = self.context.bundle
        hint = "name a trace bundle that has them (devices.trace), or use speed: drawn"
        if bundle is None or "compute" not in bundle.tables:
            raise UserError(
                "there is no compute table to take relative speeds from",
                where="devices.compute",
                hint=hint,
            )
        speed = ComputeTable(bundle, self.context.device_rows).column("relative_speed")
        missing = np.flatnonzero(np.isnan(speed))
        if len(missing):
            device = bundle.device_ids[int(self.context.device_rows[missing[0]])].as_py()
            raise UserError(
                f"the relative speed of {len(missing)} clients is not known, the first is device '{device}'",
                where=f"{bundle.manifest.name}: compute",
                hint=hint,
            )
        return speed
