"""Static, traced and shared links from the parameters of a scenario."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import truncnorm

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork, VaryingNetwork
from fedsim.traces.tables import make_table
from tests.network.bundles import ASSIGN, MB, NETWORK, SERIES, S, build, context_of, rates

DOWN, UP = Direction.DOWN, Direction.UP


def test_static_constants() -> None:
    network = build(context_of(), "static", latency="10ms", down="20Mbps", up=5e6)
    assert (rates(network, DOWN), rates(network, UP)) == ([2e7] * 3, [5e6] * 3)
    assert network.latency_ns(2) == 10_000_000
    assert type(network) is StaticNetwork
    assert rates(build(context_of(), "static", down=8e6, up_ratio=0.5), UP) == [4e6] * 3


def test_static_rates_of_the_bundle() -> None:
    network = build(context_of({"network": NETWORK}, rows=[2, 0, 1]), "static", up_ratio=0.25)
    assert rates(network, DOWN) == [4e6, 8e6, 6e6]
    assert rates(network, UP) == [1e6, 2e6, 1e6]
    assert network.latency_ns(0) == 40_000_000
    assert rates(build(context_of({"network": NETWORK}), "static", up=3e6), UP) == [3e6] * 3
    assert rates(build(context_of({"network": NETWORK}), "static", down=3e6), UP) == [3e6] * 3


def varying(cv: Any, clients: int = 3) -> VaryingNetwork:
    rates = {"down": 8e6, "up": 8e6, "latency": "0.25s"}
    network = build(context_of(clients=clients), "static", variation=cv, **rates)
    assert isinstance(network, VaryingNetwork)
    return network


def test_a_rate_is_drawn_for_each_direction_of_each_dispatch() -> None:
    network = varying(0.5)
    ends = {
        (client, direction, sequence): network.transfer_end_ns(client, direction, MB, S, sequence)
        for client in range(3)
        for direction in Direction
        for sequence in range(4)
    }
    assert len(set(ends.values())) == len(ends)
    for (client, direction, sequence), end_ns in ends.items():
        rate_bps = 8e6 * network.factor(client, direction, sequence)
        assert end_ns == pytest.approx(S + S / 4 + 8e6 / rate_bps * S, abs=2)
        assert network.transfer_end_ns(client, direction, MB, S, sequence) == end_ns
        half_ns = (end_ns - S // 4 + S) // 2
        moved = network.bytes_by(client, direction, MB, S, half_ns, sequence)
        assert moved == pytest.approx(MB / 2, rel=1e-6)
        assert network.bytes_by(client, direction, MB, S, end_ns, sequence) == MB
    # What the server may expect is the nominal rate.
    assert network.rate_bps(0, DOWN) == 8e6
    assert network.rates_bps(UP).tolist() == [8e6] * 3


@pytest.mark.parametrize("cv", [0.2, 1.5])
def test_drawn_rates_are_normal_and_never_negative(cv: float) -> None:
    network = varying(cv)
    factors = np.array([network.factor(1, DOWN, sequence) for sequence in range(4000)])
    expected = truncnorm(-1 / cv, np.inf, loc=1, scale=cv)
    assert factors.min() > 0
    assert factors.mean() == pytest.approx(expected.mean(), abs=4 * expected.std() / 4000**0.5)
    for level in (0.1, 0.5, 0.9):
        assert np.mean(factors < expected.ppf(level)) == pytest.approx(level, abs=0.02)


def test_variation_of_the_bundle_is_each_devices_own_and_unknown_is_none() -> None:
    table = NETWORK | {"bandwidth_cv": [0.5, 0.25, None, None]}
    network = build(context_of({"network": table}), "static", variation="bundle")
    # a: 0.25 both ways; b: 0.5 up, down not known; c: not known.
    moves = [
        [network.factor(client, direction, 0) != 1.0 for direction in Direction]
        for client in range(3)
    ]
    assert moves == [[True, True], [False, True], [False, False]]
    assert network.factor(0, DOWN, 0) == varying(0.25).factor(0, DOWN, 0)


def test_variation_is_refused_where_it_is_not_known() -> None:
    with pytest.raises(UserError, match="has no bandwidth_cv"):
        build(context_of({"network": NETWORK}), "static", variation="bundle")
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        build(context_of(), "static", variation=-0.1)


def test_traced_series_of_the_bundle() -> None:
    tables = {"network_series": SERIES, "network_assign": ASSIGN, "network": NETWORK}
    network = build(context_of(tables, rows=[1, 0, 2]), "traced", latency=0, up_ratio=0.5)
    # b on road at twice its rates; a on cell from 0.5 s, half as fast up; c at the constant rate of the table network.
    assert network.transfer_end_ns(0, DOWN, 4 * MB, 0) == S
    assert network.transfer_end_ns(0, UP, MB, 0) == 2 * S
    assert network.transfer_end_ns(1, DOWN, MB, 0) == 2 * S
    assert network.transfer_end_ns(1, UP, MB // 2, 0) == 2 * S
    assert network.transfer_end_ns(2, DOWN, MB, 5 * S) == 7 * S
    assert network.transfer_end_ns(2, UP, MB, 5 * S) == 9 * S
    assert rates(network, DOWN) == [32e6, 4e6, 4e6]


def test_traced_series_end_as_the_manifest_says() -> None:
    tables = {"network_series": SERIES, "network_assign": ASSIGN}
    for on_end, end_ns in (("wrap", 12 * S), ("hold", 12 * S)):
        network = build(context_of(tables, rows=[1], on_end=on_end), "traced", latency=0)
        assert network.transfer_end_ns(0, UP, 6 * MB, 0) == end_ns
    network = build(context_of(tables, rows=[0], on_end="hold"), "traced", latency=0)
    assert network.transfer_end_ns(0, DOWN, MB, 0) >= 2**62
    network = build(context_of(tables, rows=[0], on_end="hold"), "traced", latency=0, on_end="wrap")
    assert network.transfer_end_ns(0, DOWN, MB, 0) == 2 * S


def test_devices_without_any_rate_are_named() -> None:
    tables: dict[str, Mapping[str, Any]] = {"network_series": SERIES, "network_assign": ASSIGN}
    with pytest.raises(
        UserError, match="no rate down for 1 of 3 clients; the first is client 2, device 'c'"
    ):
        build(context_of(tables), "traced")
    twice = ASSIGN | {"device_id": ["a", "a"], "series_id": ["road", "cell"]}
    with pytest.raises(UserError, match="device 'a' has two series down"):
        build(context_of(tables | {"network_assign": twice}), "traced")


def test_an_uplink_without_a_rate_follows_the_downlink_times_the_ratio() -> None:
    downlinks = SERIES | {"direction": ["down", "both", "both", "down"]}
    downlinks["series_id"] = ["train", "cell", "cell", "road"]
    tables: dict[str, Mapping[str, Any]] = {"network_series": downlinks, "network_assign": ASSIGN}
    network = build(context_of(tables, rows=[1, 0]), "traced", latency=0, up_ratio=0.25)
    assert rates(network, DOWN, 2) == [32e6, 4e6]
    # b on road at twice its rates, a on cell from 0.5 s, an outage from 1 s to 2 s of its clock.
    assert rates(network, UP, 2) == [8e6, 1e6]
    assert network.transfer_end_ns(0, UP, 2 * MB, 0) == 2 * S
    assert network.transfer_end_ns(1, UP, MB // 4, 0) == 2 * S
    # A known uplink is not replaced.
    known = {"device_id": ["b"], "direction": ["up"], "bandwidth_bps": [3e6]}
    network = build(context_of(tables | {"network": known}, rows=[1]), "traced", up_ratio=0.25)
    assert network.rate_bps(0, UP) == 3e6


def test_a_downlink_alone_needs_the_ratio() -> None:
    downlink = SERIES | {"series_id": ["train", "cell", "cell", "road"]}
    tables = {"network_series": downlink, "network_assign": ASSIGN}
    with pytest.raises(UserError, match="no rate up for 1 of 2 clients") as refused:
        build(context_of(tables, rows=[1, 0]), "traced")
    assert "give devices.network.up_ratio, such as 0.2" in str(refused.value.hint)
    with pytest.raises(UserError, match="no rate down for 1 of 3 clients") as refused:
        build(context_of(tables), "traced", up_ratio=0.5)
    assert "assign a series" in str(refused.value.hint)


def series(**rtt: Any) -> dict[str, Any]:
    return {"network_series": SERIES | rtt, "network_assign": ASSIGN}


def test_latency_of_the_series_is_that_of_the_instant_at_which_the_last_byte_leaves() -> None:
    tables = {
        "network_series": {
            "series_id": ["road"] * 3,
            "direction": ["both"] * 3,
            "start_us": [0, 1_000_000, 2_000_000],
            "dur_us": [1_000_000, 1_000_000, 2_000_000],
            "rate_bps": [8e6, 0.0, 16e6],
            "rtt_s": [0.5, None, 1.0],
        },
        "network_assign": {
            "device_id": ["a"],
            "series_id": ["road"],
            "offset_us": [0],
            "scale": [1.0],
        },
    }
    network = build(context_of(tables, rows=[0]), "traced", latency="series")
    # Half of the first piece; an unknown time carries on the one before; in the last piece, and a lap later.
    assert network.transfer_end_ns(0, DOWN, MB // 2, 0) == S // 2 + S // 4
    assert network.transfer_end_ns(0, DOWN, MB, 0) == S + S // 4
    assert network.transfer_end_ns(0, UP, 0, S + S // 2) == S + S // 2 + S // 4
    assert network.transfer_end_ns(0, DOWN, 2 * MB, 0) == int(2.5 * S) + S // 2
    assert network.transfer_end_ns(0, DOWN, 6 * MB, 0) == 5 * S + S // 4
    # The mean over a lap of 4 s: 0.25 s for two of them, 0.5 s for two.
    assert network.latency_ns(0, UP) == int(0.375 * S)


def test_latency_of_series_that_do_not_tell_it_is_refused() -> None:
    with pytest.raises(
        UserError, match="latency of series 'road', which client 0 follows down, is unknown"
    ):
        build(context_of(series(), rows=[1]), "traced", latency="series")
    known = {"rtt_s": [0.1] * len(SERIES["series_id"])}
    with pytest.raises(UserError, match="latency of series 'constant rate'"):
        build(
            context_of(series(**known) | {"network": NETWORK}, rows=[2]), "traced", latency="series"
        )


def test_links_repeat_with_the_device_when_their_series_has_another_length() -> None:
    """Device a, observed from 1 s to 4 s: cell (8 Mbit/s for 1 s, an outage of 1 s) is at 0.5 s when the trace begins.

    A lap has an outage from 1 s, the rate from 1.5 s, an outage from 2.5 s, and the rate from 3.5 s to its end at 4 s.
    """
    context = context_of({"network_series": SERIES, "network_assign": ASSIGN}, rows=[0])
    bundle = context.traces
    devices = bundle.devices.to_pydict() | {
        "window_start_us": [1_000_000] * 3,
        "window_end_us": [4_000_000] * 3,
    }
    bundle.tables["devices"] = make_table("devices", devices)
    for start_s, end_s in ((1, 2), (2.5, 4), (3.6, 4.6), (4, 5), (7, 8), (0, 1)):
        network = build(context, "traced", latency=0)
        assert network.transfer_end_ns(0, DOWN, MB / 2, round(start_s * S)) == round(end_s * S)
    later = build(replace(context, offset_ns=4 * S), "traced", latency=0)
    assert later.transfer_end_ns(0, DOWN, MB / 2, 0) == S


def test_shared_kind() -> None:
    topology = {"name": "tree", "fan_out": [1, 2], "capacity": "6Mbps", "latency": "5ms"}
    network = build(
        context_of({"network": NETWORK}),
        "shared",
        topology=topology,
        attach=["n1", "n2", "n1"],
        server_up="3Mbps",
        latency="10ms",
    )
    assert isinstance(network, SharedNetwork)
    assert rates(network, DOWN) == [6e6, 6e6, 4e6]
    assert rates(network, UP) == [3e6, 1e6, 3e6]
    assert network.latency_ns(0) == 20_000_000
    # Clients 0 and 2 meet on n1, all three on the one core link.
    routes = [set(network.route(client, DOWN)) for client in range(3)]
    assert [len(routes[0] & routes[2]), len(routes[0] & routes[1])] == [3, 2]


def test_shared_attachment() -> None:
    star = {"name": "star", "sites": 2}
    base = {"down": 1e6, "latency": 0}
    network = build(context_of(), "shared", topology=star, attach="round_robin", **base)
    assert network.route(0, UP)[1] == network.route(2, UP)[1] != network.route(1, UP)[1]
    many, few = (
        build(context_of(clients=clients), "shared", topology=star, attach="random", **base)
        for clients in (3000, 100)
    )
    drawn = [many.route(client, UP)[1] for client in range(3000)]
    assert min(Counter(drawn).values()) > 1400
    # A client's node depends on the client alone, not on how many there are.
    links = [network.route(client, UP)[1] for network in (many, few) for client in range(100)]
    first = links[0], links[100]
    assert [link == first[0] for link in links[:100]] == [link == first[1] for link in links[100:]]
    with pytest.raises(UserError, match="2 access nodes for 3 clients"):
        build(context_of(), "shared", topology=star, attach=["n0", "n1"], **base)


def test_routes_are_listed_for_the_nodes_of_clients_alone(tmp_path: Path) -> None:
    """All routes of a chain of 20,000 nodes have 200 million links."""
    links = "".join(f"n{node} n{node + 1} 1Gbps 1ms\n" for node in range(20_000))
    (tmp_path / "chain.edges").write_text(f"server n0 1Gbps 1ms\n{links}")
    topology = {"name": "file", "path": str(tmp_path / "chain.edges")}
    network = build(context_of(), "shared", topology=topology, latency=0, down=1e6)
    assert isinstance(network, SharedNetwork)
    assert network.topology.access == ("n0", "n1", "n2")
    assert [len(network.route(client, UP)) for client in range(3)] == [3, 4, 5]
    far = {"attach": ["n0", "n20000", "n0"], "topology": topology, "latency": 0, "down": 1e6}
    assert len(build(context_of(), "shared", **far).route(1, DOWN)) == 20_003


def test_shared_attachment_by_group(tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("server north 1Gbps 5ms\nserver south 1Gbps 9ms\n")
    topology = {"name": "file", "path": str(tmp_path / "sites.txt")}
    context = context_of({"network": NETWORK}, rows=[1, 0])
    network = build(context, "shared", topology=topology, attach="group", latency=0)
    assert [network.latency_ns(client) for client in range(2)] == [9_000_000, 5_000_000]
    with pytest.raises(UserError, match="client 2 belongs to 'None'"):
        build(context_of({"network": NETWORK}), "shared", topology=topology, attach="group")
