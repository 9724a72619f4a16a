"""``network: {name: static}``: every client has its own latency and constant rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedsim.network.base import Direction, Network, NetworkContext, NetworkKind
from fedsim.network.columns import (
    AccessParams,
    bundle_variations,
    latency_column,
    rate_columns,
)
from fedsim.network.static import StaticNetwork, VaryingNetwork
from fedsim.network.transported import with_transport
from fedsim.randomness import Purpose


class StaticParams(AccessParams):
    """Parameters of static links."""

    variation: Annotated[float, Field(ge=0)] | Literal["bundle"] = 0.0
    """Coefficient of variation of a client's rate over its dispatches: a number, or the bundle's bandwidth_cv (as FLASH
    replays its speeds). The rate is normally distributed, and redrawn while negative."""

    def needs_tables(self) -> Mapping[str, str]:
        """Those of access links, and the bundle's variation if the parameters use it."""
        instead = "give devices.network.variation a number"
        needed = {"network": instead} if self.variation == "bundle" else {}
        return needed | dict(super().needs_tables())


class Static(NetworkKind):
    """Constant latency, and rates that are constant or drawn per dispatch; links are not shared."""

    name = "static"
    Params = StaticParams
    params: StaticParams

    def build(self, context: NetworkContext) -> Network:
        """The links of all clients, with constant or drawn rates."""
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
