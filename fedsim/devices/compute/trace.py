"""Step times from the compute table of a trace bundle."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel
from fedsim.devices.compute.variation import ComputeParams
from fedsim.errors import UserError
from fedsim.units import Duration


class TraceComputeParams(ComputeParams):
    """Parameters of step times from a trace bundle."""

    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file."""
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
        table = bundle.tables["compute"].to_pandas()
        if self.params.task != "*":
            table = table[table["task"].astype(str) == self.params.task]
        table = table.drop_duplicates("device_id")
        devices = bundle.tables["devices"].column("device_id").to_pandas().astype(str)
        table = table.set_index(table["device_id"].astype(str)).reindex(
            devices.iloc[self.context.device_rows]
        )
        if self.params.reference_step is not None:
            step = self.params.reference_step / table["relative_speed"].to_numpy(np.float64)
        else:
            factor = np.where(
                table["phase"].astype(str) == "inference", self.params.train_factor, 1.0
            )
            sample = table["sample_s"].to_numpy(np.float64)
            step = factor * (
                table["step_fixed_s"].fillna(0.0).to_numpy(np.float64)
                + sample * self.context.batch_samples
            )
        missing = np.flatnonzero(~np.isfinite(step))
        if len(missing):
            device = devices.iloc[int(self.context.device_rows[missing[0]])]
            raise UserError(
                f"{len(missing)} clients have no usable row in the compute table, the first is device '{device}'",
                where=f"{bundle.manifest.name}: compute",
                hint="a row needs sample_s, or relative_speed together with devices.compute.reference_step",
            )
        result: npt.NDArray[np.float64] = step
        return result
