"""Step times from the compute table of a trace bundle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel, ComputeParams, ComputeTable
from fedsim.errors import UserError
from fedsim.network.columns import require_known
from fedsim.units import Duration

_REFERENCE_STEP = (
    "it has relative speeds: give devices.compute.reference_step, the time of a local step on a "
    "device of speed 1"
)
_ANOTHER_BUNDLE = (
    "complete the source and import it again, use another bundle, or give a distribution such as "
    "{name: lognormal, median: 0.1s}"
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
        params, context = self.params, self.context
        table = ComputeTable(context, params.task)
        speed = table.column("relative_speed")
        if params.reference_step is not None:
            hint = _ANOTHER_BUNDLE
            if np.isfinite(table.column("sample_s")).all():
                hint = "it has times, which are used without reference_step: remove it"
            where = "devices.compute.reference_step"
            require_known(speed, "relative_speed", where, hint, context)
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
        step = factor * (fixed_s + table.column("sample_s") * context.batch_samples)
        hint = _REFERENCE_STEP if np.isfinite(speed).all() else _ANOTHER_BUNDLE
        require_known(step, "time of a local step", "devices.compute", hint, context)
        return step
