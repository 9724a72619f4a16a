"""Step times from the compute table of a trace bundle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel, ComputeParams
from fedsim.devices.compute.table import ComputeTable
from fedsim.errors import UserError
from fedsim.units import Duration

_REFERENCE_STEP = (
    "it has relative speeds: give devices.compute.reference_step, the time of a local step on a "
    "device of speed 1"
)
_ANOTHER_BUNDLE = (
    "use another bundle, or give a distribution such as {name: lognormal, median: 0.1s}"
)


class TraceComputeParams(ComputeParams):
    """Parameters of step times from a trace bundle."""

    task: str = "*"
    """Task whose rows of the compute table are used; ``*`` for any."""
    train_factor: float = Field(default=1.0, gt=0)
    """Factor on times measured for inference (FedScale uses 3.0; measured: 2 to 21, median 6.4)."""
    reference_step: Duration | None = None
    """Time of one local step of this model on a device of relative speed 1, for tables that contain only relative
    speeds."""

    def needs_tables(self) -> Mapping[str, str]:
        """The bundle's step times."""
        return {"compute": "give a distribution such as {name: lognormal, median: 0.1s}"}


class TraceCompute(ComputeModel):
    """``step_fixed_s + sample_s x batch`` of each client's device; or a reference time over its relative speed."""

    name = "trace"
    Params = TraceComputeParams

    def step_s(self) -> npt.NDArray[np.float64]:
        """The bundle's times, or the reference time over the bundle's speeds."""
        params, table = self.params, ComputeTable(self.context, self.params.task)
        speed = table.column("relative_speed")
        if params.reference_step is not None:
            timed = np.isfinite(table.column("sample_s")).all()
            table.require(
                speed,
                "relative_speed",
                "it has times, which are used without reference_step: remove it"
                if timed
                else _ANOTHER_BUNDLE,
                "devices.compute.reference_step",
            )
            step: npt.NDArray[np.float64] = params.reference_step / speed
            return step
        inference = table.is_inference()
        if params.train_factor != 1 and not inference.any():
            raise UserError(
                "the times of this bundle were not measured for inference, so train_factor has no effect",
                where="devices.compute.train_factor",
                hint="remove it; to make all devices slower, give reference_step or scale the bundle",
            )
        factor = np.where(inference, params.train_factor, 1.0)
        fixed_s = np.nan_to_num(table.column("step_fixed_s"))
        step = factor * (fixed_s + table.column("sample_s") * self.context.batch_samples)
        table.require(
            step,
            "time of a local step (sample_s)",
            _REFERENCE_STEP if np.isfinite(speed).all() else _ANOTHER_BUNDLE,
        )
        return step
