"""Links that are not shared, ``network: {name: static}`` or ``traced``: constant, drawn, or measured rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.network.base import Direction, Network, NetworkContext, NetworkKind
from fedsim.network.columns import (
    AccessParams,
    LinkParams,
    SeriesLatencySource,
    bundle_rates,
    bundle_variations,
    latency_column,
    latency_tables,
    rate_columns,
    require_known,
    transport_of,
)
from fedsim.network.static import StaticNetwork, VaryingNetwork
from fedsim.network.traced import RateSeries, Ride, TracedNetwork
from fedsim.network.transport import TransportedNetwork
from fedsim.network.transports.fluid import Fluid
from fedsim.randomness import Purpose
from fedsim.traces.parameters import OnEnd
from fedsim.units import NS_PER_S, NS_PER_US
from fedsim.vocabulary.arrays import Floats, Ints

if TYPE_CHECKING:
    from fedsim.traces.bundle import TraceBundle


_CONSTANT = "constant rate"


class Static(NetworkKind):
    """Constant latency, and rates that are constant or drawn per dispatch; links are not shared."""

    name = "static"

    class Params(AccessParams):
        variation: Annotated[float, Field(ge=0)] | Literal["bundle"] = 0.0
        """Coefficient of variation of a client's rate over its dispatches: a number, or the bundle's bandwidth_cv (as
        FLASH replays its speeds). The rate is normally distributed, and redrawn while negative."""

        def needs_tables(self) -> Mapping[str, str]:
            """Those of access links, and the bundle's variation if the parameters use it."""
            instead = "give devices.network.variation a number"
            needed = {"network": instead} if self.variation == "bundle" else {}
            return needed | dict(super().needs_tables())

    params: Params

    def build(self, context: NetworkContext) -> Network:
        params = self.params
        down_bps, up_bps = rate_columns(params, context)
        links: dict[str, Any] = {
            "latency_s": latency_column(params.latency, context),
            "down_bps": down_bps,
            "up_bps": up_bps,
            "clients": context.clients,
        }
        if not params.variation:
            return with_transport(StaticNetwork(**links), params, context)
        if params.variation == "bundle":
            cv = bundle_variations(context)
        else:
            cv = np.full((len(Direction), context.clients), params.variation)
        streams = [context.stream(Purpose.NETWORK_JITTER, int(way)) for way in Direction]
        return with_transport(VaryingNetwork(cv=cv, streams=streams, **links), params, context)


class Traced(NetworkKind):
    """Rates over time from the bundle's network_series, assigned by network_assign.

    A device without a series in a direction has the constant rate of the bundle's table ``network``. If its uplink is
    not there either, and up_ratio is given, the uplink follows the series of the downlink, times up_ratio.
    """

    name = "traced"

    class Params(LinkParams):
        latency: SeriesLatencySource = 0.04
        """One-way latency: a duration, lognormal, bundle (half its rtt_s), series (half the rtt_s of the series
        followed, when the last byte leaves), or {name: rtt_matrix, server: NODE}."""
        on_end: OnEnd | None = None
        """Behavior outside a series: wrap, hold, unavailable or error; by default, the setting in the bundle's
        manifest."""

        def needs_tables(self) -> Mapping[str, str]:
            """The bundle's series, and its round-trip times if the parameters use them."""
            return {"network_series": "use name: static", **latency_tables(self.latency)}

    params: Params

    def build(self, context: NetworkContext) -> Network:
        params = self.params
        bundle, latency = context.traces, params.latency
        series, numbers = _read_series(bundle, params.on_end or bundle.manifest.on_end)
        links = TracedNetwork(
            series,
            down=_ride(Direction.DOWN, params, numbers, series, context),
            up=_ride(Direction.UP, params, numbers, series, context),
            latency_s=None if latency == "series" else latency_column(latency, context),
        )
        return with_transport(links, params, context)


def _read_series(
    bundle: TraceBundle, on_end: OnEnd
) -> tuple[RateSeries, dict[tuple[str, str], int]]:
    """The bundle's series and a last one of constant rate 1, and the numbers of the series by (id, direction)."""
    ids, names = bundle.text_codes("network_series", "series_id")
    ways, words = bundle.text_codes("network_series", "direction")
    start_us = bundle.numpy("network_series", "start_us")
    keys, number = np.unique(ids * len(words) + ways, return_inverse=True)
    order = np.lexsort((start_us, number))
    pairs = [
        (names[name], words[way]) for name, way in zip(*np.divmod(keys, len(words)), strict=True)
    ]
    columns = {
        "start_ns": start_us[order] * NS_PER_US,
        "duration_ns": bundle.numpy("network_series", "dur_us")[order] * NS_PER_US,
        "rate_bps": bundle.numpy("network_series", "rate_bps")[order],
        "latency_s": np.full(len(order), np.nan),
    }
    if bundle.has("network_series", "rtt_s"):
        columns["latency_s"] = bundle.numpy("network_series", "rtt_s")[order].astype(float) / 2
    constant = {"start_ns": 0, "duration_ns": NS_PER_S, "rate_bps": 1.0, "latency_s": np.nan}
    series = RateSeries(
        series=np.append(number[order], len(pairs)),
        **{key: np.append(column, constant[key]) for key, column in columns.items()},
        on_end=[*([on_end] * len(pairs)), "hold"],
        names=[*(name for name, _ in pairs), _CONSTANT],
    )
    return series, {pair: index for index, pair in enumerate(pairs)}


def _ride(
    direction: Direction,
    params: Traced.Params,
    numbers: dict[tuple[str, str], int],
    series: RateSeries,
    context: NetworkContext,
) -> Ride:
    """The series of each client in one direction; ``numbers`` are those of ``series`` by name and direction."""
    # Reading the parameters of a network must not import the reader of tables.
    from fedsim.traces.intervals import device_periods

    bundle, clients = context.traces, context.device_rows
    ratio = params.up_ratio if direction is Direction.UP else 1.0
    number, offset_us, scale = _assigned(context, direction, numbers, ratio)
    unassigned = number < 0
    number[unassigned] = len(series.names) - 1
    scale[unassigned] = np.nan
    if "network" in bundle.tables:
        rates = bundle_rates(context)
        known = np.where(
            np.isnan(rates[direction]), rates[Direction.DOWN] * ratio, rates[direction]
        )
        scale[unassigned] = known[unassigned]
    hint = (
        "assign a series to them (network_assign), add their rates to the table network, or give "
        "devices.network.up_ratio, such as 0.2, so that the uplink follows the downlink"
    )
    if direction is Direction.UP and "up_ratio" in params.model_fields_set:
        down_number, down_offset_us, down_scale = _assigned(context, Direction.DOWN, numbers, 1.0)
        follows = np.isnan(scale) & (down_number >= 0)
        number[follows], offset_us[follows] = down_number[follows], down_offset_us[follows]
        scale[follows] = down_scale[follows] * ratio
    require_known(scale, f"rate {direction.name.lower()}", "network", hint, context)
    window_start, window_end = bundle.windows
    lap_us = device_periods(bundle, window_end - window_start)[clients]
    # A series that does not repeat has no period; one whose period divides the device's repeats with it.
    period_ns = np.array([series.period[each] for each in number])
    repeats = period_ns > 0
    drifts = repeats & (lap_us * NS_PER_US % np.where(repeats, period_ns, 1) > 0)
    return Ride(
        number,
        offset_us * NS_PER_US + context.offset_ns,
        scale * params.rate_factor,
        np.where(drifts, lap_us * NS_PER_US, 0),
        window_start[clients] * NS_PER_US - context.offset_ns,
    )


def _assigned(
    context: NetworkContext, direction: Direction, numbers: dict[tuple[str, str], int], ratio: float
) -> tuple[Ints, Ints, Floats]:
    """The series of each client in one direction (-1 for none), its offset (us) and its scale; shape ``(clients,)``.

    ``ratio`` scales series that apply to both directions.
    """
    bundle, clients = context.traces, context.device_rows
    devices = bundle.device_count
    number = np.full(devices, -1, np.int64)
    offset_us = np.zeros(devices, np.int64)
    scale = np.ones(devices)
    if "network_assign" in bundle.tables:
        rows = bundle.device_rows("network_assign")
        ids, names = bundle.text_codes("network_assign", "series_id")
        way = direction.name.lower()
        directed = np.array([numbers.get((name, way), -1) for name in names] or [-1])
        both = np.array([numbers.get((name, "both"), -1) for name in names] or [-1])
        series_of_row = np.where(directed >= 0, directed, both)[ids]
        factor = np.where(directed >= 0, 1.0, ratio)[ids]
        use = np.flatnonzero((series_of_row >= 0) & (rows >= 0))
        repeated = np.flatnonzero(np.bincount(rows[use], minlength=devices) > 1)
        if len(repeated):
            device = bundle.device_ids[int(repeated[0])].as_py()
            message = f"device '{device}' has two series {way} ({len(repeated)} such devices)"
            raise UserError(message, where="network_assign")
        number[rows[use]] = series_of_row[use]
        offset_us[rows[use]] = bundle.numpy("network_assign", "offset_us")[use]
        scale[rows[use]] = bundle.numpy("network_assign", "scale")[use] * factor[use]
    return number[clients], offset_us[clients], scale[clients]


def with_transport(links: Network, params: LinkParams, context: NetworkContext) -> Network:
    """The links with the transport that the parameters name."""
    transport = transport_of(params, context)
    if isinstance(transport, Fluid):
        return links
    return TransportedNetwork(links, transport, loss=params.loss, clients=context.clients)
