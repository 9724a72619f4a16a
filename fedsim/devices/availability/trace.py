"""Availability without end, or replayed from a trace bundle."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from typing_extensions import override

from fedsim.devices.availability.base import AvailabilityModel, AvailabilityParams
from fedsim.randomness import Purpose
from fedsim.units import DAY_S, NS_PER_S, Duration, to_ns
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import format_duration

if TYPE_CHECKING:
    from fedsim.traces.availability import AvailabilityIndex

_SHORTEST_CYCLE_S = 1.0


class Always(AvailabilityModel):
    """All clients are online all the time."""

    name = "always"
    Params = AvailabilityParams

    def index(self) -> AvailabilityIndex:
        from fedsim.traces.availability import AvailabilityIndex

        return AvailabilityIndex.always(self.context.clients, self.context.eligible)


class TraceAvailability(AvailabilityModel):
    """A client is online when its device was available in the trace."""

    name = "trace"

    class Params(AvailabilityParams):
        require: str | None = None
        """Eligibility rule to apply to the bundle's device_events instead of the bundle's own rule: an expression over
        charging, network, screen and lock, such as ``charging and network == wifi``."""
        start: Duration = 0.0
        """Time in the trace at which the scenario starts, for all of a device's data."""
        shift: Literal["none", "days", "any"] = "none"
        """Shift each client's trace, with all of its device's data, by a random number of whole days, which preserves
        the time of day, or by any random time."""

        def needs_tables(self) -> Mapping[str, str]:
            """The bundle's intervals, or the events from which they are derived."""
            table = "availability" if self.require is None else "device_events"
            return {table: "write devices.availability: always"}

    @cached_property
    def _shift_ns(self) -> Ints | None:
        """Shift of each client relative to ``start``, (N,); None without shifts."""
        bundle, context = self.context.traces, self.context
        if self.params.shift == "none":
            return None
        u = context.stream(Purpose.AVAILABILITY).uniforms(np.arange(context.clients))
        horizon_s = bundle.manifest.horizon_us / 1e6
        shift_s = u * horizon_s
        if self.params.shift == "days":
            shift_s = np.floor(u * max(1.0, horizon_s // DAY_S)) * DAY_S
        shift_ns: Ints = np.rint(shift_s * NS_PER_S).astype(np.int64)
        return shift_ns

    @override
    def offset_ns(self) -> Ints | int:
        start_ns, shift_ns = to_ns(self.params.start), self._shift_ns
        return start_ns if shift_ns is None else start_ns + shift_ns

    def index(self) -> AvailabilityIndex:
        from fedsim.traces.availability import AvailabilityIndex
        from fedsim.traces.eligibility import rederive

        bundle, context = self.context.traces, self.context
        if self.params.require is not None:
            bundle = rederive(bundle, self.params.require)
        index = AvailabilityIndex.from_bundle(
            bundle,
            context.device_rows,
            self._shift_ns,
            context.eligible,
            start_us=to_ns(self.params.start) // 1000,
            on_end=self.params.on_end,
        )
        if (cycle_s := index.shortest_cycle_s()) < _SHORTEST_CYCLE_S:
            # All sessions of a run are listed at its end.
            raise bundle.error(
                f"a client comes online every {format_duration(cycle_s)} as the trace repeats: are its times in the "
                "right unit?",
                f"{bundle.import_again('time_unit')}, or do not repeat it: on_end: unavailable",
            )
        return index
