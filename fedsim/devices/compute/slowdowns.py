"""Factors on the step time that change over time: scripted perturbations and replayed contention."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsim.devices.compute.base import Perturbation
from fedsim.units import NEVER, NS_PER_US, to_ns

if TYPE_CHECKING:
    from fedsim.devices import DeviceContext


_SHORTEST_US = 1000
"""Shortest period with which a series repeats, since its changes are visited one by one."""


@dataclass(slots=True)
class Slowdown:
    """A piecewise-constant factor on the step time of one client.

    Work is counted in nanoseconds at factor 1; in a span with factor f it takes f times as long.

    Attributes:
        starts_ns: start of each span, ascending; before the first, the factor is 1.
        factors: factor of each span, positive.
        period_ns: length after which the spans repeat; 0 if they do not.
        offset_ns: instant of the spans at simulated time 0.
    """

    starts_ns: Sequence[int]
    factors: Sequence[float]
    period_ns: int = 0
    offset_ns: int = 0

    def _span(self, time_ns: int) -> tuple[float, int]:
        """Factor at an instant, and when it changes next."""
        period, lap = self.period_ns, -self.offset_ns
        if period:
            lap += (time_ns - lap) // period * period
        row = bisect_right(self.starts_ns, time_ns - lap)
        factor = self.factors[row - 1] if row else 1.0
        if row < len(self.starts_ns):
            return factor, lap + self.starts_ns[row]
        return factor, lap + period if period else NEVER

    def finish(self, start_ns: int, work_ns: int) -> int:
        """When ``work_ns`` of work started at ``start_ns`` is done; NEVER if that is beyond the range of the clock."""
        now, remaining = start_ns, float(work_ns)
        while True:
            factor, change = self._span(now)
            needed = remaining * factor
            if now + needed <= change:
                return now + round(needed)
            if change >= NEVER:
                return NEVER
            remaining -= (change - now) / factor
            now = change

    def worked(self, start_ns: int, until_ns: int) -> int:
        """Work done from ``start_ns`` to ``until_ns``."""
        now, done = start_ns, 0.0
        while now < until_ns:
            factor, change = self._span(now)
            end = min(change, until_ns)
            done += (end - now) / factor
            now = end
        return round(done)


def slowdowns(
    perturbations: Sequence[Perturbation], context: DeviceContext, *, series: bool
) -> dict[int, Slowdown]:
    """The slowdown of each client that has one: scripted, and with ``series`` from the bundle's ``compute_series``."""
    of_client: dict[int, list[Slowdown]] = {}
    all_clients = range(context.clients)
    for perturbation in perturbations:
        starts_ns, factors = [to_ns(perturbation.at)], [perturbation.factor]
        if perturbation.until is not None:
            starts_ns.append(to_ns(perturbation.until))
            factors.append(1.0)
        scripted = Slowdown(starts_ns, factors)
        for client in perturbation.clients if perturbation.clients is not None else all_clients:
            of_client.setdefault(client, []).append(scripted)
    for client, replayed in _replayed(context) if series else ():
        of_client.setdefault(client, []).append(replayed)
    return {
        client: factors[0] if len(factors) == 1 else _Product(factors)
        for client, factors in of_client.items()
    }


def _replayed(context: DeviceContext) -> Iterator[tuple[int, Slowdown]]:
    """Each client whose device has a ``compute_series``, and its slowdown.

    The factor is 1 outside all pieces. A trace that wraps repeats with the device's own period; with ``hold``, the
    factor of a piece that touches an end of the device's window continues beyond it.
    """
    from fedsim.traces.intervals import FAR_US, device_periods

    bundle, device_rows = context.bundle, context.device_rows
    if bundle is None or "compute_series" not in bundle.tables:
        return
    rows = bundle.device_rows("compute_series")
    start_us = bundle.numpy("compute_series", "start_us")
    end_us = start_us + bundle.numpy("compute_series", "dur_us")
    factor = bundle.numpy("compute_series", "multiplier").astype(np.float64)
    order = np.lexsort((start_us, rows))
    rows, start_us, end_us, factor = rows[order], start_us[order], end_us[order], factor[order]
    window_start, window_end = bundle.windows
    mode = bundle.manifest.on_end
    periods = device_periods(bundle, window_end - window_start)
    offset_ns = np.broadcast_to(context.offset_ns, len(device_rows))
    first = np.searchsorted(rows, device_rows, side="left")
    last = np.searchsorted(rows, device_rows, side="right")
    for client in np.flatnonzero(last > first).tolist():
        device = device_rows[client]
        origin, length = int(window_start[device]), int(window_end[device] - window_start[device])
        span = slice(int(first[client]), int(last[client]))
        starts = (start_us[span] - origin).tolist()
        ends = (end_us[span] - origin).tolist()
        factors = factor[span].tolist()
        if mode == "hold":
            starts[0] = -FAR_US if starts[0] <= 0 else starts[0]
            ends[-1] = FAR_US if ends[-1] >= length else ends[-1]
        edges: list[tuple[int, float]] = []
        for start, end, value in zip(starts, ends, factors, strict=True):
            if edges and edges[-1][0] >= start:
                edges.pop()
            edges += [(start, value), (end, 1.0)]
        if mode == "wrap" and periods[device] < _SHORTEST_US:
            message = f"the speed of a client repeats every {periods[device]} us"
            raise bundle.error(message, bundle.import_again("time_unit"))
        yield (
            client,
            Slowdown(
                [edge * NS_PER_US for edge, _ in edges],
                [value for _, value in edges],
                int(periods[device]) * NS_PER_US if mode == "wrap" else 0,
                int(offset_ns[client]) - origin * NS_PER_US,
            ),
        )


class _Product(Slowdown):
    """Several slowdowns at once, whose factors are multiplied."""

    def __init__(self, slowdowns: Sequence[Slowdown]) -> None:
        self._slowdowns = slowdowns

    def _span(self, time_ns: int) -> tuple[float, int]:
        spans = [slowdown._span(time_ns) for slowdown in self._slowdowns]
        return math.prod(factor for factor, _ in spans), min(change for _, change in spans)
