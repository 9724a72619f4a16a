"""Availability replayed from a trace bundle."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedsim.devices.availability.base import AvailabilityModel, AvailabilityParams
from fedsim.errors import UserError
from fedsim.randomness import Purpose
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.eligibility import rederive
from fedsim.units import NS_PER_S, Duration, to_ns

_DAY_S = 86_400


class TraceAvailabilityParams(AvailabilityParams):
    """Parameters of replayed availability."""

    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file; client and device are paired by row."""
    require: str | None = None
    """Eligibility rule applied to the bundle's device_events in place of the bundle's own, an expression over
    charging, network, screen and lock, such as ``charging and network == wifi``."""
    start: Duration = 0.0
    """Instant of the trace at which the scenario starts."""
    shift: Literal["none", "days", "any"] = "none"
    """Move each client's trace by a random number of whole days (time of day is kept), or by any random time."""
    on_end: Literal["wrap", "hold", "unavailable", "error"] | None = None
    """What happens beyond the end of a device's trace; what the bundle says when not given."""


class TraceAvailability(AvailabilityModel):
    """A client is online when its device was available in the trace."""

    name: ClassVar[str] = "trace"
    Params = TraceAvailabilityParams

    def index(self) -> AvailabilityIndex:
        """See :meth:`fedsim.devices.availability.base.AvailabilityModel.index`."""
        bundle, context = self.context.bundle, self.context
        table = "availability" if self.params.require is None else "device_events"
        if bundle is None or table not in bundle.tables:
            raise UserError(
                f"there is no table {table} to replay",
                where="devices.availability",
                hint="name a trace bundle that has one (devices.trace), or use {name: always}",
            )
        if self.params.require is not None:
            bundle = rederive(bundle, self.params.require)
        shift_ns = None
        if self.params.shift != "none":
            u = context.stream(Purpose.AVAILABILITY).uniforms(np.arange(context.clients))
            horizon_s = bundle.manifest.horizon_us / 1e6
            shift_s = u * horizon_s
            if self.params.shift == "days":
                shift_s = np.floor(u * max(1.0, horizon_s // _DAY_S)) * _DAY_S
            shift_ns = np.rint(shift_s * NS_PER_S).astype(np.int64)
        return AvailabilityIndex.from_bundle(
            bundle,
            context.device_rows,
            shift_ns,
            context.eligible,
            start_us=to_ns(self.params.start) // 1000,
            on_end=self.params.on_end,
        )
