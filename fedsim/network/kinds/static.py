"""``network: {name: static}``: every client has its own latency and constant rates."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedsim.components import Parameters
from fedsim.network.base import NetworkContext, NetworkKind
from fedsim.network.columns import LatencySource, RateSource, latency_column, rate_columns
from fedsim.network.static import StaticNetwork


class StaticParams(Parameters):
    """Parameters of static links."""

    latency: LatencySource = 0.04
    """One-way latency: a duration, lognormal, bundle (half its rtt_s), or {name: rtt_matrix, server: NODE}."""
    down: RateSource = "bundle"
    """Rate from the server to a client: a rate, {name: lognormal, median, sigma}, or bundle."""
    up: RateSource = "bundle"
    """Rate from a client to the server; bundle takes down x up_ratio where no uplink is known."""
    up_ratio: float = Field(1.0, gt=0)
    """Uplink over downlink, for devices of which only one rate is known. About 0.2 on 4G, 0.5 on low-band 5G."""


class Static(NetworkKind):
    """Constant latency and rates, nothing shared."""

    name: ClassVar[str] = "static"
    Params: ClassVar[type[Parameters]] = StaticParams
    params: StaticParams

    def build(self, context: NetworkContext) -> StaticNetwork:
        """See :meth:`NetworkKind.build`."""
        params = self.params
        down_bps, up_bps = rate_columns(params.down, params.up, params.up_ratio, context)
        return StaticNetwork(
            latency_s=latency_column(params.latency, context),
            down_bps=down_bps,
            up_bps=up_bps,
            clients=context.clients,
        )
