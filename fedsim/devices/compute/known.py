"""Step times that are known: given, measured in a trace bundle, or from the model's counted operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from fedsim.devices.compute.base import ComputeModel, ComputeParams, ComputeTable
from fedsim.errors import UserError
from fedsim.network.columns import require_known
from fedsim.randomness import Purpose
from fedsim.units import Duration
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import format_counted

_REFERENCE_STEP = (
    "it has relative speeds: give devices.compute.reference_step, the time of a local step on a "
    "device of speed 1"
)
_ANOTHER_BUNDLE = (
    "complete the source and import it again, use another bundle, or give a distribution such as "
    "{name: lognormal, median: 0.1s}"
)


class Values(ComputeModel):
    """The same step time for all clients, or one per client."""

    name = "values"

    class Params(ComputeParams):
        step: Duration | list[Duration]
        """Time of one local step: one for all clients, or one per client."""

    def step_s(self) -> Floats:
        step, clients = self.params.step, self.context.clients
        if isinstance(step, list) and len(step) != clients:
            raise UserError(
                f"{format_counted(len(step), 'step time')} for {format_counted(clients, 'client')}",
                where="devices.compute.step",
                hint="give one for all, or one per client",
            )
        return np.broadcast_to(np.asarray(step, dtype=np.float64), (clients,)).copy()


class TraceCompute(ComputeModel):
    """``step_fixed_s + sample_s x batch`` of each client's device; or a reference time over its relative speed."""

    name = "trace"

    class Params(ComputeParams):
        task: str = "*"
        """Task whose rows of the compute table are used; ``*`` for any."""
        train_factor: float = Field(default=1.0, gt=0)
        """Factor on times measured for inference (FedScale uses 3.0; measured: 2 to 21, median 6.4)."""
        reference_step: Duration | None = None
        """Time of one local step of this model on a device of relative speed 1, for tables that contain only relative
        speeds."""
        speed_factor: float = Field(default=1.0, gt=0)
        """Factor on the speeds of all devices: 2 halves their step times."""

        def needs_tables(self) -> Mapping[str, str]:
            """The bundle's step times."""
            return {"compute": "give a distribution such as {name: lognormal, median: 0.1s}"}

    def step_s(self) -> Floats:
        params, context = self.params, self.context
        table = ComputeTable(context, params.task)
        speed = table.column("relative_speed")
        if params.reference_step is not None:
            if params.train_factor != 1:
                raise UserError(
                    "train_factor has no effect beside reference_step",
                    where="devices.compute.train_factor",
                    hint="remove it, and scale reference_step",
                )
            hint = _ANOTHER_BUNDLE
            if np.isfinite(table.column("sample_s")).all():
                hint = "it has times, which are used without reference_step: remove it"
            where = "devices.compute.reference_step"
            require_known(speed, "relative_speed", where, hint, context)
            step: Floats = params.reference_step / speed / params.speed_factor
            return step
        inference = table.is_inference()
        if params.train_factor != 1 and not inference.any():
            raise UserError(
                "the times of this bundle were not measured for inference, so train_factor has no effect",
                where="devices.compute.train_factor",
                hint="remove it; to make all devices half as fast, give speed_factor: 0.5",
            )
        factor = np.where(inference, params.train_factor, 1.0)
        fixed_s = np.nan_to_num(table.column("step_fixed_s"))
        step = factor * (fixed_s + table.column("sample_s") * context.batch_samples)
        step /= params.speed_factor
        hint = _REFERENCE_STEP if np.isfinite(speed).all() else _ANOTHER_BUNDLE
        require_known(step, "time of a local step", "devices.compute", hint, context)
        return step


class Flops(ComputeModel):
    """(fixed + batch samples x operations per sample / flops_per_s) / relative speed of the device.

    The operations of a forward and a backward pass are counted once on the model (a multiply-add is two).
    """

    name = "flops"
    needs_flops = True

    class Params(ComputeParams):
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

    def step_s(self) -> Floats:
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
        result: Floats = median_s / self._speeds()
        return result

    def _speeds(self) -> Floats:
        """Speed of each client's device relative to the median one, (N,)."""
        context, params = self.context, self.params
        speed: Floats
        if params.speed == "bundle":
            speed = ComputeTable(context).column("relative_speed")
            hint = "use another bundle, or speed: drawn"
            require_known(speed, "relative_speed", "devices.compute.speed", hint, context)
            return speed
        from scipy.special import ndtri

        u = context.stream(Purpose.COMPUTE_PROFILE).uniforms(np.arange(context.clients))
        speed = np.clip(np.exp(params.sigma * ndtri(u)), 1 / params.limit, params.limit)
        return speed
