"""Step times from the compute table of a trace bundle."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel
from fedsim.devices.compute.table import ComputeTable
from fedsim.devices.compute.variation import ComputeParams
from fedsim.errors import UserError
from fedsim.units import Duration


class TraceComputeParams(ComputeParams):
    """Parameters of step times from a trace bundle."""

    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file; client and device are paired by row."""
    task: str = "*"
    """Which rows of the compute table: their ``task``; ``*`` takes the rows of any task."""
    train_factor: float = Field(default=1.0, gt=0)
    """Factor on times measured for inference (3.0 is FedScale's law; measurements say 2 to 21, median 6.4)."""
    reference_step: Duration | None = None
    """Time of one local step of this model on a device of relative speed 1, for tables that hold relative speeds
    only."""


class TraceCompute(ComputeModel):
    """``step_fixed_s + sample_s x batch`` of each client's device; or a reference time over its relative speed."""

    name: ClassVar[str] = "trace"
    Params = TraceComputeParams

    def step_s(self) -> npt.NDArray[np.float64]:
        """See :meth:`fedsim.devices.compute.base.ComputeModel.step_s`."""
        bundle = self.context.bundle
        if bundle is None or "compute" not in bundle.tables:
            raise UserError(
                "there is no compute table to take step times from",
                where="devices.compute",
                hint="name a trace bundle with one (devices.trace), or give a distribution such as "
                "{name: lognormal, median: 0.1s}",
            )
        table = ComputeTable(bundle, self.context.device_rows, self.params.task)
        if self.params.reference_step is not None:
            step = self.params.reference_step / table.column("relative_speed")
        else:
            inference = table.is_inference()
            if self.params.train_factor != 1 and not inference.any():
                raise UserError(
                    "the times of this bundle were not measured for inference, so the factor applies to none",
                    where="devices.compute.train_factor",
                    hint="leave it out; to make all devices slower, give reference_step or scale the bundle",
                )
            factor = np.where(inference, self.params.train_factor, 1.0)
            fixed_s = np.nan_to_num(table.column("step_fixed_s"))
            step = factor * (fixed_s + table.column("sample_s") * self.context.batch_samples)
        missing = np.flatnonzero(~np.isfinite(step))
        if len(missing):
            device = bundle.device_ids[int(self.context.device_rows[missing[0]])].as_py()
            raise UserError(
                f"{len(missing)} clients have no usable row in the compute table, the first is device '{device}'",
                where=f"{bundle.manifest.name}: compute",
                hint="a row needs sample_s, or relative_speed together with devices.compute.reference_step",
            )
        result: npt.NDArray[np.float64] = step
        return result
