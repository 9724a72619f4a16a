"""``network: {name: static}``: every client has its own latency and constant rates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedsim.components import Parameters
from fedsim.network.base import NetworkContext, NetworkKind
from fedsim.network.columns import (
    Draw,
    LatencySource,
    RateSource,
    bundle_variations,
    latency_column,
    rate_columns,
)
from fedsim.network.static import StaticNetwork, VaryingNetwork
from fedsim.randomness import Purpose


class StaticParams(Parameters):
    """Parameters of static links."""

    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file; client and device are paired by row."""
    latency: LatencySource = 0.04
    """One-way latency: a duration, lognormal, bundle (half its rtt_s), or {name: rtt_matrix, server: NODE}."""
    down: RateSource = "bundle"
    """Rate from the server to a client: a rate, {name: lognormal, median, sigma}, or bundle."""
    up: RateSource = "bundle"
    """Rate from a client to the server; bundle takes down x up_ratio where no uplink is known."""
    up_ratio: float = Field(1.0, gt=0)
    """Uplink over downlink, for devices of which only one rate is known. About 0.2 on 4G, 0.5 on low-band 5G."""
    variation: Annotated[float, Field(ge=0)] | Literal["bundle"] = 0.0
    """Standard deviation of a rate over its mean, from dispatch to dispatch: a number, or the bundle's bandwidth_cv
    (as FLASH replays its speeds). The rate is normal, drawn again while it is negative."""


class Static(NetworkKind):
    """Constant latency, and rates that are constant or drawn for each dispatch; nothing shared."""

    name: ClassVar[str] = "static"
    Params: ClassVar[type[Parameters]] = StaticParams
    params: StaticParams

    def build(self, context: NetworkContext) -> StaticNetwork:
        """See :meth:`NetworkKind.build`."""
        params = self.params
        down_bps, up_bps = rate_columns(params.down, params.up, params.up_ratio, context)
        latency_s = latency_column(params.latency, context)
        if not params.variation:
            return StaticNetwork(
                latency_s=latency_s, down_bps=down_bps, up_bps=up_bps, clients=context.clients
            )
        if params.variation == "bundle":
            down_cv, up_cv = bundle_variations(context)[:, context.device_rows]
        else:
            down_cv = up_cv = np.full(context.clients, params.variation)
        return VaryingNetwork(
            latency_s=latency_s,
            down_bps=down_bps,
            up_bps=up_bps,
            clients=context.clients,
            down_cv=down_cv,
            up_cv=up_cv,
            streams=(
                context.stream(Purpose.NETWORK_JITTER, int(Draw.DOWN)),
                context.stream(Purpose.NETWORK_JITTER, int(Draw.UP)),
            ),
        )
