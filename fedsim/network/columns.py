"""Per-client columns of rates and latencies: from a constant, a distribution, or the trace bundle."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, Tag

from fedsim.errors import UserError
from fedsim.network.base import Direction, NetworkContext
from fedsim.network.transport import Transport
from fedsim.parts.component import Parameters
from fedsim.randomness import Purpose
from fedsim.scenario.parts import BY_DEFAULT, OfKind, Part
from fedsim.traces.parameters import TraceParameters
from fedsim.units import Duration, Rate
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import format_count, format_counted


class Draw(enum.IntEnum):
    """Purposes of a network's random numbers, each with a separate stream."""

    DOWN = 0
    UP = 1
    LATENCY = 2
    ATTACHMENT = 3
    GRAPH = 4
    LINK_CAPACITY = 5
    LINK_LATENCY = 6


class LognormalRate(Parameters):
    """Rates drawn from a lognormal distribution, one per client or link."""

    name: Literal["lognormal"]
    """lognormal"""
    median: Rate
    """Median rate."""
    sigma: float = Field(ge=0)
    """Standard deviation of the natural logarithm; FedScale's phones have 1.16."""


class LognormalDuration(Parameters):
    """Latencies drawn from a lognormal distribution, one per client or link."""

    name: Literal["lognormal"]
    """lognormal"""
    median: Duration
    """Median latency."""
    sigma: float = Field(ge=0)
    """Standard deviation of the natural logarithm."""


class RttMatrix(Parameters):
    """Latencies from the bundle's matrix of round-trip times; a device's node is its group."""

    name: Literal["rtt_matrix"]
    """rtt_matrix"""
    server: str
    """Node of the server."""


def _form(value: Any) -> str:
    if value in ("bundle", "series"):
        return str(value)
    if isinstance(value, dict):
        return str(value.get("name"))
    return "constant" if isinstance(value, int | float | str) else str(getattr(value, "name", ""))


def _choice(what: str, example: str) -> Discriminator:
    return Discriminator(
        _form,
        custom_error_type=what,
        custom_error_message=f"is not a {what}: give {example}",
    )


Bundle = Annotated[Literal["bundle"], Tag("bundle")]

RateSource = Annotated[
    Bundle | Annotated[Rate, Tag("constant")] | Annotated[LognormalRate, Tag("lognormal")],
    _choice(
        "rate", "a rate such as 20Mbps, bundle, or {name: lognormal, median: 20Mbps, sigma: 1}"
    ),
]
"""A rate for each client: one for all, ``{name: lognormal, median: 10Mbps, sigma: 1}``, or ``bundle``."""

_Latency = (
    Annotated[Duration, Tag("constant")]
    | Annotated[LognormalDuration, Tag("lognormal")]
    | Annotated[RttMatrix, Tag("rtt_matrix")]
)
_OTHER_LATENCIES = (
    "bundle, {name: lognormal, median: 40ms, sigma: 1} or {name: rtt_matrix, server: NODE}"
)

LatencySource = Annotated[
    Bundle | _Latency, _choice("latency", f"a duration such as 40ms, {_OTHER_LATENCIES}")
]
"""A one-way latency for each client: one for all, lognormal, half the bundle's ``rtt_s``, or half the RTT matrix."""

SeriesLatencySource = Annotated[
    Bundle | Annotated[Literal["series"], Tag("series")] | _Latency,
    _choice("latency", f"a duration such as 40ms, series, {_OTHER_LATENCIES}"),
]
"""As :data:`LatencySource`, or half the ``rtt_s`` of the client's series."""

LinkRate = Annotated[
    Annotated[Rate, Tag("constant")] | Annotated[LognormalRate, Tag("lognormal")],
    _choice("rate", "a rate such as 1Gbps, or {name: lognormal, median: 1Gbps, sigma: 1}"),
]
"""A rate for each link: one for all, or lognormal."""

LinkLatency = Annotated[
    Annotated[Duration, Tag("constant")] | Annotated[LognormalDuration, Tag("lognormal")],
    _choice("latency", "a duration such as 5ms, or {name: lognormal, median: 5ms, sigma: 1}"),
]
"""A latency for each link: one for all, or lognormal."""


_Loss = Annotated[float, Field(ge=0, lt=0.5)]


class LinkParams(TraceParameters):
    """Parameters of every kind of network."""

    up_ratio: float = Field(1.0, gt=0)
    """Ratio of uplink to downlink, for devices with only one known rate. About 0.2 on 4G, 0.5 on low-band 5G."""
    rate_factor: float = Field(1.0, gt=0)
    """Factor on the rates of all clients' links: 0.5 halves the bandwidth of a trace."""
    transport: Annotated[Part[Any], OfKind("transport", "fluid")] = BY_DEFAULT
    """How a transfer sends its bytes: fluid (at the rate of the links), or tcp (connection setup, slow start, headers,
    loss)."""
    loss: _Loss | list[_Loss] = 0.0
    """Share of packets lost on a client's link, in each direction: one value for all clients, or one per client.
    Requires a transport that models loss, such as tcp."""


class AccessParams(LinkParams):
    """Parameters of access links of constant rates."""

    latency: LatencySource = 0.04
    """One-way latency of a client's link (shared links add the latency of the route): a duration, lognormal, bundle
    (half its rtt_s), or {name: rtt_matrix, server: NODE}."""
    down: RateSource = "bundle"
    """Rate of a client's link from the server: a rate, {name: lognormal, median, sigma}, or bundle."""
    up: RateSource = "bundle"
    """Rate of a client's link to the server; with bundle, down x up_ratio if the uplink is unknown."""

    def needs_tables(self) -> Mapping[str, str]:
        """The bundle's rates and round-trip times, if the parameters use them."""
        needed = dict(latency_tables(self.latency))
        if self.down == "bundle":
            needed["network"] = "give devices.network.down a rate, such as 20Mbps"
        return needed


def latency_tables(source: SeriesLatencySource) -> Mapping[str, str]:
    """Tables that a source of latencies needs; see :meth:`TraceParameters.needs_tables`."""
    instead = "give devices.network.latency a duration, such as 40ms"
    if isinstance(source, RttMatrix):
        return {"rtt_matrix": instead}
    return {"network": instead} if source == "bundle" else {}


def transport_of(params: LinkParams, context: NetworkContext) -> Transport:
    """The transport of a network."""
    transport: Transport = params.transport.create()
    where = "devices.network.loss"
    if isinstance(params.loss, list) and len(params.loss) != context.clients:
        message = f"{len(params.loss)} values for {format_counted(context.clients, 'client')}"
        raise UserError(message, where=where, hint="give one per client, or one for all")
    if np.any(params.loss) and not transport.loses:
        message = f"the transport {params.transport.name} does not model lost packets"
        raise UserError(message, where=where, hint="add transport: tcp, or remove loss")
    return transport


def drawn(
    source: float | LognormalRate | LognormalDuration,
    count: int,
    context: NetworkContext,
    draw: Draw,
) -> Floats:
    """A constant or drawn value for each of ``count`` clients or links."""
    if isinstance(source, LognormalRate | LognormalDuration):
        stream = context.stream(Purpose.NETWORK_PROFILE, int(draw))
        # Values that are too large become infinite, which the columns' checks report.
        with np.errstate(over="ignore", invalid="ignore"):
            column: Floats = source.median * np.exp(source.sigma * stream.normals(np.arange(count)))
        return column
    return np.full(count, float(source))


def rate_columns(params: AccessParams, context: NetworkContext) -> tuple[Floats, Floats]:
    """Rates (bit/s) of all clients, down and up; shape ``(clients,)`` each.

    ``up: bundle`` means the bundle's uplink if it is known and the downlink comes from the bundle too; otherwise the
    downlink times ``up_ratio``.
    """
    down, up, factor = params.down, params.up, params.rate_factor
    if down == "bundle":
        down_bps, up_known = bundle_rates(context)
        where = "devices.network.down"
        require_known(down_bps, "downlink", where, f"give {where} a rate", context)
    else:
        down_bps = drawn(down, context.clients, context, Draw.DOWN)
        up_known = np.full(context.clients, np.nan)
    if up != "bundle":
        return down_bps * factor, drawn(up, context.clients, context, Draw.UP) * factor
    with np.errstate(over="ignore"):
        up_bps = down_bps * params.up_ratio
    return down_bps * factor, np.where(np.isnan(up_known), up_bps, up_known) * factor


def bundle_rates(context: NetworkContext) -> Floats:
    """Rates (bit/s) from the bundle's ``network`` table, NaN if unknown; shape ``(2, clients)``.

    A bandwidth for both directions is used as the downlink; an uplink needs its own row.
    """
    ways = ((Direction.DOWN, "both"), (Direction.DOWN, "down"), (Direction.UP, "up"))
    return _by_direction(context, "bandwidth_bps", ways)


def bundle_variations(context: NetworkContext) -> Floats:
    """Coefficients of variation from the bundle's ``network`` table, NaN if unknown; ``(2, clients)``."""
    if "bandwidth_cv" not in context.traces.table("network").column_names:
        raise UserError(
            "the network table of the trace bundle has no bandwidth_cv",
            where="devices.network.variation",
            hint="give devices.network.variation a number, or 0 for constant rates",
        )
    both = [(direction, "both") for direction in Direction]
    ways = (*both, (Direction.DOWN, "down"), (Direction.UP, "up"))
    return _by_direction(context, "bandwidth_cv", ways)


def _by_direction(
    context: NetworkContext, column: str, ways: Sequence[tuple[Direction, str]]
) -> Floats:
    """A column of the table ``network`` by direction and client, (2, clients); later ``ways`` override earlier ones."""
    bundle = context.traces
    rows = bundle.device_rows("network")
    ways_of_rows = bundle.texts("network", "direction")
    values = bundle.numpy("network", column)
    result = np.full((2, bundle.device_count), np.nan)
    for direction, way in ways:
        chosen = (ways_of_rows == way) & (rows >= 0)
        result[direction, rows[chosen]] = values[chosen]
    return result[:, context.device_rows]


def latency_column(source: LatencySource, context: NetworkContext) -> Floats:
    """One-way latencies (s) of all clients; shape ``(clients,)``."""
    if source == "bundle":
        bundle = context.traces
        rtt_s = np.full(bundle.device_count, np.nan)
        if "rtt_s" in bundle.table("network").column_names:
            rows = bundle.device_rows("network")
            values = bundle.numpy("network", "rtt_s")
            known = (rows >= 0) & ~np.isnan(values)
            rtt_s[rows[known]] = values[known]
        rtt_s = rtt_s[context.device_rows]
    elif isinstance(source, RttMatrix):
        rtt_s = _matrix_rtt_s(source.server, context)
    else:
        return drawn(source, context.clients, context, Draw.LATENCY)
    hint = "give devices.network.latency a duration, such as 40ms"
    require_known(rtt_s, "round-trip time", "devices.network.latency", hint, context)
    return rtt_s / 2


def _matrix_rtt_s(server: str, context: NetworkContext) -> Floats:
    """Round-trip time between each client's group and the server's node; the mean over slices and directions."""
    where, bundle = "devices.network.latency", context.traces
    source, target = (bundle.texts("rtt_matrix", key) for key in ("src", "dst"))
    rtt_s = bundle.numpy("rtt_matrix", "rtt_s").astype(np.float64)
    out, back = (source == server) & ~np.isnan(rtt_s), (target == server) & ~np.isnan(rtt_s)
    if not (out | back).any():
        raise UserError(f"the rtt_matrix has no round-trip time to '{server}'", where=where)
    nodes = np.concatenate([target[out], source[back & ~out]]).astype(str)
    times_s = np.concatenate([rtt_s[out], rtt_s[back & ~out]])
    names, number = np.unique(nodes, return_inverse=True)
    mean_s = np.bincount(number, times_s) / np.bincount(number)
    of_node = dict(zip(names.tolist(), mean_s.tolist(), strict=True))
    groups = device_groups(context, where)
    return np.array([of_node.get(group, np.nan) for group in groups], dtype=np.float64)


def device_groups(context: NetworkContext, where: str) -> npt.NDArray[np.object_]:
    """The group of each client's device, ``None`` if unknown; shape ``(clients,)``."""
    if not context.traces.has("devices", "group"):
        raise UserError("the devices of the trace bundle have no groups", where=where)
    return context.traces.texts("devices", "group")[context.device_rows]


def require_known(
    column: Floats, what: str, where: str, hint: str, context: NetworkContext
) -> None:
    """Refuse a column of the bundle, shape ``(clients,)``, with an unknown value (NaN)."""
    unknown = np.isnan(column)
    if unknown.any():
        client = int(unknown.argmax())
        device = context.traces.device_ids[int(context.device_rows[client])].as_py()
        raise UserError(
            f"the trace bundle {context.traces.manifest.name} has no {what} for {format_count(int(unknown.sum()))} of "
            f"{format_counted(context.clients, 'client')}; the first is client {client}, device '{device}'",
            where=where,
            hint=hint,
        )
