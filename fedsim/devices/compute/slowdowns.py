"""Factors on the step time that change over time: scripted perturbations and replayed contention."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.devices.compute.base import Perturbation
from fedsim.units import NEVER, NS_PER_US, to_ns

if TYPE_CHECKING:
    from fedsim.traces.bundle import TraceBundle


class Slowdown:
    """A piecewise-constant factor on the step time of one client.

    Work is counted in nanoseconds at factor 1; in a span with factor f it takes f times as long.

    Args:
        starts_ns: start of each span, ascending; before the first the factor is 1.
        factors: factor of each span, positive.
        period_ns: length after which the spans repeat; 0 if they do not.
    """

    def __init__(
        self, starts_ns: Sequence[int], factors: Sequence[float], period_ns: int = 0
    ) -> None:
        self._starts = list(starts_ns)
        self._factors = list(factors)
        self._period = period_ns

    def _span(self, time_ns: int) -> tuple[float, int]:
        """Factor at an instant, and when it changes next."""
        lap = time_ns // self._period * self._period if self._period else 0
        row = bisect_right(self._starts, time_ns - lap)
        factor = self._factors[row - 1] if row else 1.0
        if row < len(self._starts):
            return factor, lap + self._starts[row]
        return factor, lap + self._period if self._period else NEVER

    def finish(self, start_ns: int, work_ns: int) -> int:
        """When ``work_ns`` of work that starts at ``start_ns`` is done; NEVER if that is beyond the clock."""
        at, left = start_ns, float(work_ns)
        while True:
            factor, change = self._span(at)
            needed = left * factor
            if at + needed <= change:
                return at + round(needed)
            if change >= NEVER:
                return NEVER
            left -= (change - at) / factor
            at = change

    def worked(self, start_ns: int, until_ns: int) -> int:
        """Work done from ``start_ns`` to ``until_ns``."""
        at, done = start_ns, 0.0
        while at < until_ns:
            factor, change = self._span(at)
            end = min(change, until_ns)
            done += (end - at) / factor
            at = end
        return round(done)


def slowdowns(
    perturbations: Sequence[Perturbation],
    bundle: TraceBundle | None,
    device_rows: npt.NDArray[np.int64],
    clients: int,
) -> dict[int, Slowdown]:
    """The slowdown of each client that has one.

    Args:
        perturbations: scripted ones.
        bundle: bundle whose ``compute_series`` is replayed, if any.
        device_rows: device of each client in the bundle.
        clients: number of clients.
    """
    of_client: dict[int, list[Slowdown]] = {}
    for perturbation in perturbations:
        starts_ns, factors = [to_ns(perturbation.at)], [perturbation.factor]
        if perturbation.until is not None:
            starts_ns.append(to_ns(perturbation.until))
            factors.append(1.0)
        scripted = Slowdown(starts_ns, factors)
        for client in perturbation.clients if perturbation.clients is not None else range(clients):
            of_client.setdefault(client, []).append(scripted)
    for client, replayed in _replayed(bundle, device_rows):
        of_client.setdefault(client, []).append(replayed)
    return {
        client: parts[0] if len(parts) == 1 else _Product(parts)
        for client, parts in of_client.items()
    }


def _replayed(
    bundle: TraceBundle | None, device_rows: npt.NDArray[np.int64]
) -> Iterator[tuple[int, Slowdown]]:
    """Each client whose device has a ``compute_series``, and its slowdown."""
    if bundle is None or "compute_series" not in bundle.tables:
        return
    rows = bundle.device_rows("compute_series")
    start_us = bundle.numpy("compute_series", "start_us")
    factor = bundle.numpy("compute_series", "multiplier").astype(np.float64)
    order = np.lexsort((start_us, rows))
    rows, start_us, factor = rows[order], start_us[order], factor[order]
    period_ns = bundle.manifest.horizon_us * NS_PER_US if bundle.manifest.on_end == "wrap" else 0
    first = np.searchsorted(rows, device_rows, side="left")
    last = np.searchsorted(rows, device_rows, side="right")
    for client in np.flatnonzero(last > first).tolist():
        span = slice(int(first[client]), int(last[client]))
        starts_ns = (start_us[span] * NS_PER_US).tolist()
        yield client, Slowdown(starts_ns, factor[span].tolist(), period_ns)


class _Product(Slowdown):
    """Several slowdowns at once: their factors multiply."""

    def __init__(self, parts: Sequence[Slowdown]) -> None:
        self._parts = parts

    def _span(self, time_ns: int) -> tuple[float, int]:
        spans = [part._span(time_ns) for part in self._parts]
        return math.prod(factor for factor, _ in spans), min(change for _, change in spans)
