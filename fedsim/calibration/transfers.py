"""Transport, latency and rates from the durations of transfers.

A transfer takes its latency and the time that its transport needs for its bytes at the rate of the link. Transfers of
different sizes separate the three: with the right transport and latency, a link has the same rate for every size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from fedsim.network.transport import Connection, Transport
from fedsim.network.transports.fluid import Fluid
from fedsim.network.transports.tcp import Tcp
from fedsim.parts.parameters import Parameters
from fedsim.vocabulary.arrays import Floats

LatencySource = Literal["log", "scenario", "nothing"]
"""Where latencies come from: estimated from the log, given by the scenario, or neither."""

CANDIDATES: tuple[Transport, ...] = (
    Fluid(Parameters()),
    Tcp(Tcp.Params(connection="reuse")),
    Tcp(Tcp.Params(connection="new")),
)
"""Transports that are tried if transfers differ in size."""

_SIZES_DIFFER = 1.1
_ROWS = 6
"""Number of transfers per link from which transport and latency are chosen, spread over the sizes."""
_CLIENTS = 10
"""Number of clients from which the transport is chosen."""
_CLEARLY = 0.5
"""A transport other than the assumed one must leave less than this share of the variance of the rates."""
_ROUNDING = 1e-6
"""Variance of log rates that counts as rounding."""
_GRID = 16
"""Number of latencies that are tried first."""
_SLOWEST_BPS, FASTEST_BPS = 1.0, 1e13
_CLOCK_S = 1e-9
"""Resolution of simulated time; shorter transfers, of few bytes on fast links, count as this long."""
_PART = 0.1
"""Share of the shortest transfer by which a latency is changed to compute derivatives."""
_IMPOSSIBLE = 1e9
"""Spread of rates that stands for an impossible latency, one longer than the log's transfers allow."""


@dataclass(frozen=True)
class Link:
    """The transfers of one client in one direction: sizes in bytes and durations in seconds, shape ``(n,)``."""

    sizes: Floats
    spans_s: Floats

    @property
    def shows_latency(self) -> bool:
        """Whether the sizes differ enough to separate latency and rate."""
        return len(self.sizes) > 1 and self.sizes.max() >= _SIZES_DIFFER * self.sizes.min()

    def sample(self) -> Link:
        """A few of the transfers, spread over the sizes."""
        order = np.argsort(self.sizes, kind="stable")
        rows = order[np.unique(np.linspace(0, len(order) - 1, _ROWS).round().astype(int))]
        return Link(self.sizes[rows], self.spans_s[rows])

    def rates_bps(self, transport: Transport, latency_s: float | Floats) -> Floats:
        """The rate at which each transfer takes its time, shape ``(n,)``; latencies may differ between transfers."""
        if isinstance(transport, Fluid):
            wire_s = np.maximum(self.spans_s, _CLOCK_S) - latency_s
            rates = 8 * self.sizes / np.maximum(wire_s, 1e-18)
            return np.asarray(np.clip(rates, _SLOWEST_BPS, FASTEST_BPS))
        transfers = np.broadcast(latency_s, self.sizes, self.spans_s)
        return np.array([_rate_bps(transport, *map(float, each)) for each in transfers])

    def slope(self, transport: Transport, latency_s: float, change_s: float) -> float:
        """Relative change of the rates per second of latency, for a change of the latency; 0 without one."""
        if not change_s or not len(self.sizes):
            return 0.0
        few = self.sample()
        change_s = min(change_s, _PART * float(few.spans_s.min()))
        before, after = (
            np.log(few.rates_bps(transport, latency)).mean()
            for latency in (latency_s, latency_s + change_s)
        )
        return float(after - before) / change_s


@dataclass(frozen=True)
class Transfers:
    """Results from transfers; columns of shape ``(clients,)``.

    Attributes:
        transport: how transfers send their bytes; the assumed one unless the log clearly shows another.
        latency_s, latency_errors: one-way latency (NaN if the log does not show it) and its standard error in seconds.
        latency_from: whether the latencies are estimated from the log, those of the scenario, or neither (they are 0).
        flags: statements about the rest.
    """

    transport: Transport
    latency_s: Floats
    latency_errors: Floats
    latency_from: LatencySource = "nothing"
    flags: tuple[str, ...] = ()


def identify(
    links: list[tuple[Link, Link]], assumed: Transport, latency_s: Floats | None
) -> Transfers:
    """The transport and the latencies under which the rates of links depend least on the sizes of transfers.

    Args:
        links: the links of each client, down and up.
        assumed: the transport unless the transfers clearly show another.
        latency_s: one-way latency of each client if it is known, shape ``(clients,)``.
    """
    source: LatencySource = "log" if latency_s is None else "scenario"
    errors = np.zeros(len(links))
    samples = [[link.sample() for link in pair if link.shows_latency] for pair in links]
    telling = [client for client, each in enumerate(samples) if each]
    if not telling:
        unknown, rest = "transport and rate", ""
        if latency_s is None:
            latency_s, source, unknown = errors, "nothing", "transport, latency and rate"
            rest = ", latency counts as 0, and the rates include it. Give a scenario with the latency to separate them"
        flag = f"All transfers have one size, so {unknown} cannot be separated: the transport is {describe(assumed)}"
        return Transfers(assumed, latency_s, errors, source, (f"{flag}{rest}.",))
    telling.sort(key=lambda client: -sum(len(link.sizes) for link in links[client]))
    few = telling[:_CLIENTS]
    known = [None] * len(links) if latency_s is None else latency_s.tolist()
    unlike = [each for each in CANDIDATES if describe(each) != describe(assumed)]
    fits = {
        transport: {client: _fit(samples[client], transport, known[client]) for client in few}
        for transport in (assumed, *unlike)
    }
    spreads = {
        each: _ROUNDING + sum(spread for _, spread in fit.values()) for each, fit in fits.items()
    }
    best = min(spreads, key=spreads.__getitem__)
    transport = best if spreads[best] < _CLEARLY * spreads[assumed] else assumed
    close = [each for each, spread in spreads.items() if _CLEARLY * spread <= spreads[best]]
    alike = [describe(each) for each in close if each is not transport]
    flags = (
        f"The transfers fit {' and '.join(alike)} about as well as {describe(transport)}; the latter is used.",
    )
    if latency_s is None:
        latency_s = np.full(len(links), np.nan)
        for client in telling:
            fit = fits[transport].get(client) or _fit(samples[client], transport, None)
            latency_s[client] = fit[0]
            errors[client] = _latency_error(samples[client], transport, *fit)
        unseen = np.isnan(latency_s)
        errors[unseen] = np.nanstd(latency_s)
        latency_s = np.where(unseen, np.nanmedian(latency_s), latency_s)
    return Transfers(transport, latency_s, errors, source, flags if alike else ())


def describe(transport: Transport) -> str:
    """The transport as a scenario names it, such as ``tcp (connection: reuse)``."""
    options = ", ".join(
        f"{key}: {value}" for key, value in section(transport).items() if key != "name"
    )
    return f"{transport.name} ({options})" if options else transport.name


def section(transport: Transport) -> dict[str, object]:
    """The transport as a section of a scenario."""
    return {"name": transport.name, **transport.params.model_dump(exclude_defaults=True)}


def _fit(samples: list[Link], transport: Transport, latency_s: float | None) -> tuple[float, float]:
    """The latency of a client, and the sum of squared deviations of its log rates from their link's mean."""

    def spread(latency: float) -> float:
        return _spread(samples, transport, latency)

    if latency_s is not None:
        return latency_s, spread(latency_s)
    least_s = min(float(link.spans_s.min()) for link in samples)
    # The spread has one minimum, beside the plateau of impossible latencies.
    grid = [0.0, *np.geomspace(least_s / 1000, least_s, _GRID)]
    lowest = int(np.argmin([spread(latency) for latency in grid]))
    around = (grid[max(lowest - 1, 0)], grid[min(lowest + 1, _GRID)])
    result = minimize_scalar(
        spread, bounds=around, method="bounded", options={"xatol": 1e-7 * least_s}
    )
    return float(result.x), float(result.fun)


def _spread(samples: list[Link], transport: Transport, latency_s: float) -> float:
    rates = [link.rates_bps(transport, latency_s) for link in samples]
    if any(each.max() >= FASTEST_BPS for each in rates):
        return _IMPOSSIBLE
    return float(sum(((logs - logs.mean()) ** 2).sum() for logs in map(np.log, rates)))


def _latency_error(
    samples: list[Link], transport: Transport, latency_s: float, least: float
) -> float:
    """The standard error of the latency whose spread is the least one, in seconds.

    Least squares: the variance is twice that of the residuals, divided by the second derivative of the sum of squares.
    If the transfers hardly depend on the latency, it is only known to lie between 0 and the shortest transfer.
    """
    shortest_s = min(float(link.spans_s.min()) for link in samples)
    freedom = sum(len(link.sizes) - 1 for link in samples) - 1
    change_s = _PART * max(shortest_s - latency_s, 0.0)
    if freedom < 1 or not change_s:
        return shortest_s / 2
    first_s = max(latency_s - change_s, 0.0)
    one, two, three = (_spread(samples, transport, first_s + k * change_s) for k in range(3))
    curvature = (one - 2 * two + three) / change_s**2
    variance = 2 * (least / freedom) / curvature if curvature > 0 else math.inf
    return min(math.sqrt(variance), shortest_s / 2)


def _rate_bps(transport: Transport, latency_s: float, size_bytes: float, span_s: float) -> float:
    def excess(log_rate: float) -> float:
        rate_bps = math.exp(log_rate)
        connection = Connection(round(2e9 * latency_s), rate_bps, rate_bps)
        transfer_s = latency_s + transport.course(size_bytes, connection).alone_s(rate_bps)
        return math.log(max(transfer_s, _CLOCK_S)) - math.log(max(span_s, _CLOCK_S))

    slow, fast = math.log(_SLOWEST_BPS), math.log(FASTEST_BPS)
    if excess(fast) >= 0:
        return FASTEST_BPS
    if excess(slow) <= 0:
        return _SLOWEST_BPS
    return math.exp(brentq(excess, slow, fast, xtol=1e-10))
