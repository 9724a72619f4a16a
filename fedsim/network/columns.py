"""Per-client columns of rates and latencies: from a constant, a distribution, or the trace bundle."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, Tag

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.network.base import Direction, NetworkContext
from fedsim.randomness import Purpose
from fedsim.units import Duration, Rate

FloatArray = npt.NDArray[np.float64]


class Draw(enum.IntEnum):
    """What a random number of a network is for; sets their streams apart."""

    DOWN = 0
    UP = 1
    LATENCY = 2
    ATTACHMENT = 3
    GRAPH = 4
    LINK_CAPACITY = 5
    LINK_LATENCY = 6


class LognormalRate(Parameters):
    """Rates drawn from a lognormal distribution, one for each client or link."""

    name: Literal["lognormal"]
    """lognormal"""
    median: Rate
    """Half of the rates lie below it."""
    sigma: float = Field(ge=0)
    """Standard deviation of the natural logarithm; FedScale's phones have 1.16."""


class LognormalDuration(Parameters):
    """Latencies drawn from a lognormal distribution, one for each client or link."""

    name: Literal["lognormal"]
    """lognormal"""
    median: Duration
    """Half of the latencies lie below it."""
    sigma: float = Field(ge=0)
    """Standard deviation of the natural logarithm."""


class RttMatrix(Parameters):
    """Latencies from the bundle's matrix of round-trip times; a device's node is its group."""

    name: Literal["rtt_matrix"]
    """rtt_matrix"""
    server: str
    """Node at which the server stands."""


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

LatencySource = Annotated[
    Bundle
    | Annotated[Duration, Tag("constant")]
    | Annotated[LognormalDuration, Tag("lognormal")]
    | Annotated[RttMatrix, Tag("rtt_matrix")],
    _choice(
        "latency",
        "a duration such as 40ms, bundle, {name: lognormal, median: 40ms, sigma: 1} or"
        " {name: rtt_matrix, server: NODE}",
    ),
]
"""A one-way latency for each client: one for all, lognormal, half the bundle's ``rtt_s``, or half the RTT matrix."""

SeriesLatencySource = Annotated[
    Bundle
    | Annotated[Literal["series"], Tag("series")]
    | Annotated[Duration, Tag("constant")]
    | Annotated[LognormalDuration, Tag("lognormal")]
    | Annotated[RttMatrix, Tag("rtt_matrix")],
    _choice(
        "latency",
        "a duration such as 40ms, series, bundle, {name: lognormal, median: 40ms, sigma: 1} or"
        " {name: rtt_matrix, server: NODE}",
    ),
]
"""As :data:`LatencySource`, or half the ``rtt_s`` of the series that a client rides."""

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


def drawn(
    source: float | LognormalRate | LognormalDuration,
    count: int,
    context: NetworkContext,
    draw: Draw,
) -> FloatArray:
    """A constant or drawn value for each of ``count`` clients or links."""
    if isinstance(source, LognormalRate | LognormalDuration):
        stream = context.stream(Purpose.NETWORK_PROFILE, int(draw))
        # What is too large becomes infinite, which the checks of the columns judge.
        with np.errstate(over="ignore", invalid="ignore"):
            column: FloatArray = source.median * np.exp(
                source.sigma * stream.normals(np.arange(count))
            )
        return column
    return np.full(count, float(source))


def rate_columns(
    down: RateSource, up: RateSource, up_ratio: float, context: NetworkContext
) -> tuple[FloatArray, FloatArray]:
    """Rates (bit/s) of all clients, down and up; shape ``(clients,)`` each.

    Args:
        down: source of the rates from the server.
        up: source of the rates to the server. ``bundle`` means the bundle's uplink for clients whose downlink comes
            from the bundle too and whose device has one, else the downlink times ``up_ratio``.
        up_ratio: uplink over downlink.
        context: clients, bundle and random streams.

    Raises:
        UserError: the bundle does not know a client's rate.
    """
    if down == "bundle":
        known = bundle_rates(context)[:, context.device_rows]
        down_bps, up_known = known[Direction.DOWN], known[Direction.UP]
        _require(
            down_bps,
            "downlink",
            "devices.network.down",
            "give devices.network.down a rate",
            context,
        )
    else:
        down_bps = drawn(down, context.clients, context, Draw.DOWN)
        up_known = np.full(context.clients, np.nan)
    if up != "bundle":
        return down_bps, drawn(up, context.clients, context, Draw.UP)
    with np.errstate(over="ignore"):
        up_bps = down_bps * up_ratio
    return down_bps, np.where(np.isnan(up_known), up_bps, up_known)


def bundle_rates(context: NetworkContext) -> FloatArray:
    """Rates (bit/s) that the bundle's ``network`` table knows, NaN where it does not; shape ``(2, devices)``.

    A bandwidth given for both directions is a downlink; only a row of its own makes an uplink known.

    Raises:
        UserError: there is no bundle, or it has no table ``network``.
    """
    bundle = _bundle(
        context, "devices.network.down", "give devices.network.down a rate, such as 20Mbps"
    )
    ways = ((Direction.DOWN, "both"), (Direction.DOWN, "down"), (Direction.UP, "up"))
    return _by_direction(bundle, "bandwidth_bps", ways)


def bundle_variations(context: NetworkContext) -> FloatArray:
    """Coefficients of variation that the bundle's ``network`` table knows, NaN where it does not; ``(2, devices)``.

    Raises:
        UserError: there is no bundle, or its table ``network`` has no ``bandwidth_cv``.
    """
    where = "devices.network.variation"
    bundle = _bundle(context, where, "give devices.network.variation a number")
    if "bandwidth_cv" not in bundle.table("network").column_names:
        raise UserError(
            "the network table of the trace bundle has no bandwidth_cv",
            where=where,
            hint="give devices.network.variation a number, or 0 for constant rates",
        )
    both = [(direction, "both") for direction in Direction]
    ways = (*both, (Direction.DOWN, "down"), (Direction.UP, "up"))
    return _by_direction(bundle, "bandwidth_cv", ways)


def _by_direction(bundle: Any, column: str, ways: Sequence[tuple[Direction, str]]) -> FloatArray:
    """A column of the table ``network`` by direction and device, (2, devices); a later one of ``ways`` goes first."""
    rows = bundle.device_rows("network")
    codes, words = text_codes(bundle.table("network"), "direction")
    values = bundle.numpy("network", column)
    result = np.full((2, bundle.device_count), np.nan)
    for direction, way in ways:
        chosen = (codes == words.index(way) if way in words else codes < -1) & (rows >= 0)
        result[direction, rows[chosen]] = values[chosen]
    return result


def latency_column(source: LatencySource, context: NetworkContext) -> FloatArray:
    """One-way latencies (s) of all clients; shape ``(clients,)``.

    Raises:
        UserError: the bundle does not know a client's round-trip time.
    """
    hint = "give devices.network.latency a duration, such as 40ms"
    if source == "bundle":
        bundle = _bundle(context, "devices.network.latency", hint)
        rtt_s = np.full(bundle.device_count, np.nan)
        if "rtt_s" in bundle.table("network").column_names:
            rows = bundle.device_rows("network")
            found = bundle.numpy("network", "rtt_s")
            known = (rows >= 0) & ~np.isnan(found)
            rtt_s[rows[known]] = found[known]
        rtt_s = rtt_s[context.device_rows]
    elif isinstance(source, RttMatrix):
        rtt_s = _matrix_rtt_s(source.server, context)
    else:
        return drawn(source, context.clients, context, Draw.LATENCY)
    _require(rtt_s, "round-trip time", "devices.network.latency", hint, context)
    return rtt_s / 2


def _matrix_rtt_s(server: str, context: NetworkContext) -> FloatArray:
    """Round-trip time between each client's group and the server's node; the mean over slices and both ways."""
    where = "devices.network.latency"
    bundle = _bundle(context, where, "name a bundle with the table rtt_matrix")
    source, target = (text_column(bundle.table("rtt_matrix"), key) for key in ("src", "dst"))
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
    """The group of each client's device, ``None`` where it is not known; shape ``(clients,)``.

    Raises:
        UserError: there is no bundle, or its devices have no groups.
    """
    bundle = _bundle(context, where, "groups are a column of the bundle's devices")
    if "group" not in bundle.devices.column_names:
        raise UserError("the devices of the trace bundle have no groups", where=where)
    groups: npt.NDArray[np.object_] = text_column(bundle.devices, "group")[context.device_rows]
    return groups


def text_codes(table: Any, column: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """A column of dictionary-encoded text as its words and, for each row, the number of its word; -1 where null."""
    encoded = table.column(column).unify_dictionaries().combine_chunks()
    codes: npt.NDArray[np.int64] = (
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return codes, encoded.dictionary.to_pylist()


def text_column(table: Any, column: str) -> npt.NDArray[np.object_]:
    """A column of dictionary-encoded text as Python strings, ``None`` where it is null; shape ``(rows,)``."""
    codes, words = text_codes(table, column)
    texts: npt.NDArray[np.object_] = np.array([*words, None], dtype=object)[codes]
    return texts


def _bundle(context: NetworkContext, where: str, hint: str) -> Any:
    if context.bundle is None:
        raise UserError("there is no trace bundle to take it from", where=where, hint=hint)
    return context.bundle


def _require(column: FloatArray, what: str, where: str, hint: str, context: NetworkContext) -> None:
    unknown = np.isnan(column)
    if unknown.any():
        client = int(unknown.argmax())
        assert context.bundle is not None
        device = context.bundle.device_ids[int(context.device_rows[client])].as_py()
        raise UserError(
            f"the trace bundle does not know the {what} of {int(unknown.sum())} of {context.clients} clients;"
            f" the first is client {client}, device '{device}'",
            where=where,
            hint=hint,
        )
