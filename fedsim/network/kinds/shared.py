"""``network: {name: shared}``: transfers share the links of a topology max-min fairly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fedsim.errors import UserError, raise_all
from fedsim.network.base import NetworkContext, NetworkKind
from fedsim.network.columns import (
    AccessParams,
    Draw,
    device_groups,
    latency_column,
    rate_columns,
    transport_of,
)
from fedsim.network.graphs import AnyGraph, Direct
from fedsim.network.shared import Flow, SharedNetwork
from fedsim.network.topology import Topology
from fedsim.randomness import Purpose
from fedsim.units import Rate
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import format_counted


class Shared(NetworkKind):
    """Transfers slow each other down on shared links."""

    name = "shared"

    class Params(AccessParams):
        topology: AnyGraph = Direct(name="direct")
        """Links between the server and the nodes that clients attach to: direct, star, tree, barabasi_albert, waxman,
        watts_strogatz, or file."""
        attach: Literal["round_robin", "random", "group"] | list[str] = "round_robin"
        """Access node of each client: assigned in turn, at random, by name of its device's group, or from a list of
        node names, one per client."""
        server_down: Rate | None = None
        """Capacity of the server's outgoing link; unlimited by default."""
        server_up: Rate | None = None
        """Capacity of the server's incoming link; unlimited by default."""
        flows: list[Flow] = []
        """Other traffic on the topology's links; ``flows`` in run.json gives the arrival of each transfer."""

        def needs_tables(self) -> Mapping[str, str]:
            """Those of access links, and the devices' groups if clients are attached by group."""
            needed = {"devices": "use attach: round_robin"} if self.attach == "group" else {}
            return needed | dict(super().needs_tables())

    params: Params

    def build(self, context: NetworkContext) -> SharedNetwork:
        params = self.params
        topology, attachment = self._attached(context)
        if context.servers:
            topology, _ = topology.served_by(context.servers)
        down_bps, up_bps = rate_columns(params, context)
        return SharedNetwork(
            topology,
            attachment=attachment,
            down_bps=down_bps,
            up_bps=up_bps,
            latency_s=latency_column(params.latency, context),
            server_down_bps=np.inf if params.server_down is None else params.server_down,
            server_up_bps=np.inf if params.server_up is None else params.server_up,
            flows=params.flows,
            transport=transport_of(params, context),
            loss=params.loss,
        )

    def nearest(self, context: NetworkContext) -> Ints:
        """Index of the nearest of the context's servers for each client, (N,)."""
        topology, attachment = self._attached(context)
        _, nearest = topology.served_by(context.servers)
        return nearest[attachment]

    def _attached(self, context: NetworkContext) -> tuple[Topology, Ints]:
        """The topology whose access nodes are those of clients, and the one of each client."""
        topology = self.params.topology.topology(context)
        every = self._attachment(topology.access, context)
        nodes, attachment = np.unique(every, return_inverse=True)
        return replace(topology, access=tuple(topology.access[node] for node in nodes)), attachment

    def _attachment(self, access: tuple[str, ...], context: NetworkContext) -> Ints:
        attach, where = self.params.attach, "devices.network.attach"
        clients = np.arange(context.clients)
        if attach == "round_robin":
            return clients % len(access)
        if attach == "random":
            stream = context.stream(Purpose.NETWORK_PROFILE, int(Draw.ATTACHMENT))
            nodes = (stream.uniforms(clients) * len(access)).astype(np.int64)
            return np.minimum(nodes, len(access) - 1)
        if attach == "group":
            return attach_by_name(device_groups(context, where).tolist(), access, where)
        if len(attach) != context.clients:
            message = f"{len(attach)} access nodes for {format_counted(context.clients, 'client')}"
            raise UserError(message, where=where, hint="give one per client")
        return attach_by_name(attach, access, where)


def attach_by_name(names: Sequence[str | None], access: Sequence[str], where: str) -> Ints:
    """Index of the access node with each client's name, shape ``(clients,)``."""
    number = {name: index for index, name in enumerate(access)}
    column = np.array([number.get(str(name), -1) for name in names], dtype=np.int64)
    raise_all(
        UserError(
            f"client {client} belongs to '{names[client]}', which is not an access node",
            where=where,
            hint=f"access nodes are: {', '.join(access[:10])}{', ...' if len(access) > 10 else ''}",
        )
        for client in np.flatnonzero(column < 0)[:10].tolist()
    )
    return column
