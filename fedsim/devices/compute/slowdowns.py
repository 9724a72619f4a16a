"""Factors on the step time that change over time: scripted perturbations and replayed contention."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.devices.compute.variation import Perturbation
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
    scripted = _scripted(perturbations, clients)
    replayed = _replayed(bundle, device_rows)
    return {
        client: _product(scripted.get(client), replayed.get(client))
        for client in sorted(scripted.keys() | replayed.keys())
    }


def _scripted(
    perturbations: Sequence[Perturbation], clients: int
) -> dict[int, tuple[list[int], list[float]]]:
    result: dict[int, tuple[list[int], list[float]]] = {}
    of_client: dict[int, list[Perturbation]] = {}
    for perturbation in perturbations:
        for client in perturbation.clients if perturbation.clients is not None else range(clients):
            of_client.setdefault(client, []).append(perturbation)
    for client, own in of_client.items():
        edges = sorted(
            {to_ns(one.at) for one in own}
            | {to_ns(one.until) for one in own if one.until is not None}
        )
        factors = []
        for edge in edges:
            factor = 1.0
            for one in own:
                if to_ns(one.at) <= edge and (one.until is None or edge < to_ns(one.until)):
                    factor *= one.factor
            factors.append(factor)
        result[client] = (edges, factors)
    return result


_Spans = tuple[list[int], list[float], int]


def _replayed(bundle: TraceBundle | None, device_rows: npt.NDArray[np.int64]) -> dict[int, _Spans]:
    if bundle is None or "compute_series" not in bundle.tables:
        return {}
    rows = bundle.device_rows("compute_series")
    start_us = bundle.numpy("compute_series", "start_us")
    factor = bundle.numpy("compute_series", "multiplier").astype(np.float64)
    order = np.lexsort((start_us, rows))
    rows, start_us, factor = rows[order], start_us[order], factor[order]
    period_ns = bundle.manifest.horizon_us * NS_PER_US if bundle.manifest.on_end == "wrap" else 0
    result: dict[int, _Spans] = {}
    first = np.searchsorted(rows, device_rows, side="left")
    last = np.searchsorted(rows, device_rows, side="right")
    for client in np.flatnonzero(last > first).tolist():
        span = slice(int(first[client]), int(last[client]))
        result[client] = ((start_us[span] * NS_PER_US).tolist(), factor[span].tolist(), period_ns)
    return result


def _product(scripted: tuple[list[int], list[float]] | None, replayed: _Spans | None) -> Slowdown:
    if scripted is None:
        assert replayed is not None
        return Slowdown(*replayed)
    if replayed is None:
        return Slowdown(*scripted)
    return _Both(Slowdown(*scripted), Slowdown(*replayed))


class _Both(Slowdown):
    """Two slowdowns at once: their factors multiply."""

    def __init__(self, one: Slowdown, other: Slowdown) -> None:
        self._one, self._other = one, other

    def _span(self, time_ns: int) -> tuple[float, int]:
        factor, change = self._one._span(time_ns)
        other_factor, other_change = self._other._span(time_ns)
        return factor * other_factor, min(change, other_change)
