"""Kinds of network as a scenario names them, built from parameters and a small trace bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.errors import UserError
from fedsim.network import Direction, Network, NetworkContext, registry
from fedsim.network.shared import SharedNetwork
from fedsim.randomness import Purpose, Stream
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table

DOWN, UP = Direction.DOWN, Direction.UP
S = 1_000_000_000
MB = 1_000_000


def context_of(
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    rows: list[int] | None = None,
    clients: int = 3,
    on_end: str = "wrap",
) -> NetworkContext:
    bundle = None
    if tables is not None:
        devices = {
            "device_id": ["a", "b", "c"],
            "group": ["north", "south", None],
            "window_start_us": [0] * 3,
            "window_end_us": [10**9] * 3,
            "valid": [True] * 3,
        }
        manifest = Manifest.model_validate(
            {
                "name": "small",
                "horizon_us": 10**9,
                "on_end": on_end,
                "importer": "test",
                "importer_version": "1",
            }
        )
        made = {name: make_table(name, columns) for name, columns in tables.items()}
        bundle = TraceBundle(manifest, made | {"devices": make_table("devices", devices)})

    def stream(purpose: Purpose, *keys: int) -> Stream:
        return Stream(0, purpose, *keys)

    device_rows = np.arange(clients) if rows is None else np.array(rows)
    return NetworkContext(len(device_rows), bundle, device_rows, stream, Path())


def build(context: NetworkContext, name: str, **params: Any) -> Any:
    kind = registry()[name]
    return kind(kind.Params(**params)).build(context)


def rates(network: Network | SharedNetwork, direction: Direction, clients: int = 3) -> list[float]:
    return [network.rate_bps(client, direction) for client in range(clients)]


# a: both ways 8 Mbit/s; b: 6 down, 1 up; c: 4 down only. Only b's round-trip time is known.
NETWORK = {
    "device_id": ["b", "a", "b", "c"],
    "direction": ["up", "both", "down", "down"],
    "bandwidth_bps": [1e6, 8e6, 6e6, 4e6],
    "rtt_s": [0.06, None, 0.06, None],
}


def test_the_kinds() -> None:
    assert list(registry()) == ["shared", "static", "traced"]


def test_static_constants() -> None:
    network = build(context_of(), "static", latency="10ms", down="20Mbps", up=5e6)
    assert (rates(network, DOWN), rates(network, UP)) == ([2e7] * 3, [5e6] * 3)
    assert network.latency_ns(2) == 10_000_000
    assert network.contended is False
    assert rates(build(context_of(), "static", down=8e6, up_ratio=0.5), UP) == [4e6] * 3


def test_static_rates_of_the_bundle() -> None:
    network = build(context_of({"network": NETWORK}, rows=[2, 0, 1]), "static", up_ratio=0.25)
    assert rates(network, DOWN) == [4e6, 8e6, 6e6]
    assert rates(network, UP) == [1e6, 2e6, 1e6]
    assert network.latency_ns(0) == 40_000_000
    assert rates(build(context_of({"network": NETWORK}), "static", up=3e6), UP) == [3e6] * 3
    assert rates(build(context_of({"network": NETWORK}), "static", down=3e6), UP) == [3e6] * 3


def test_latency_of_the_bundle_is_half_the_round_trip() -> None:
    context = context_of({"network": NETWORK}, rows=[1, 1])
    assert build(context, "static", latency="bundle").latency_ns(1) == 30_000_000
    with pytest.raises(UserError, match=r"round-trip time of 2 of 3 clients.*client 0, device 'a'"):
        build(context_of({"network": NETWORK}), "static", latency="bundle")
    no_rtt = {key: column for key, column in NETWORK.items() if key != "rtt_s"}
    with pytest.raises(UserError, match="round-trip time of 3 of 3 clients"):
        build(context_of({"network": no_rtt}), "static", latency="bundle")


def test_latency_of_the_rtt_matrix() -> None:
    matrix = {
        "src": ["north", "paris", "paris", "south", "north"],
        "dst": ["paris", "north", "south", "north", "rome"],
        "rtt_s": [0.02, 0.04, 0.25, 7.0, None],
    }
    context = context_of({"network": NETWORK, "rtt_matrix": matrix}, rows=[0, 1, 0])
    source = {"name": "rtt_matrix", "server": "paris"}
    network = build(context, "static", latency=source)
    assert [network.latency_ns(client) for client in range(3)] == [
        15_000_000,
        125_000_000,
        15_000_000,
    ]
    with pytest.raises(UserError, match="no round-trip time to 'rome'"):
        build(context, "static", latency=source | {"server": "rome"})
    with pytest.raises(UserError, match="round-trip time of 1 of 3 clients"):
        build(context_of({"network": NETWORK, "rtt_matrix": matrix}), "static", latency=source)


def test_drawn_rates_are_lognormal_and_follow_the_client() -> None:
    source = {"name": "lognormal", "median": "10Mbps", "sigma": 0.5}
    latency = {"name": "lognormal", "median": "40ms", "sigma": 0.25}
    few = build(context_of(clients=5), "static", down=source, up=source, latency=latency)
    many = build(context_of(clients=4000), "static", down=source, up=source, latency=latency)
    assert rates(few, DOWN, 5) == rates(many, DOWN, 5)
    down, up = np.log(rates(many, DOWN, 4000)), np.log(rates(many, UP, 4000))
    assert np.median(down) == pytest.approx(np.log(1e7), abs=0.03)
    assert down.std() == pytest.approx(0.5, abs=0.02)
    assert abs(np.corrcoef(down, up)[0, 1]) < 0.05
    delay = np.log([many.latency_ns(client) for client in range(4000)])
    assert np.median(delay) == pytest.approx(np.log(4e7), abs=0.02)
    assert delay.std() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("name", ["static", "shared", "traced"])
def test_a_bundle_is_asked_for_where_there_is_none(name: str) -> None:
    with pytest.raises(UserError, match="there is no trace bundle"):
        build(context_of(), name)


def test_what_the_bundle_does_not_know_is_named() -> None:
    unknown = NETWORK | {"bandwidth_bps": [1e6, None, 6e6, 4e6]}
    with pytest.raises(
        UserError, match="downlink of 1 of 3 clients; the first is client 0, device 'a'"
    ):
        build(context_of({"network": unknown}), "static")
    with pytest.raises(UserError, match="no table network"):
        build(context_of({}), "static")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"down": "fast"}, "'fast' is not a rate"),
        ({"down": {"name": "uniform"}}, "is not a rate: give a rate such as 20Mbps"),
        ({"latency": [1]}, "is not a latency: give a duration such as 40ms"),
        ({"latency": {"name": "lognormal", "median": "1s", "sigma": -1}}, "greater than or equal"),
        ({"up_ratio": 0}, "greater than 0"),
        ({"donw": 1}, "unknown key"),
    ],
)
def test_parameters_are_checked(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        registry()["static"].Params(**params)


# cell: 8 Mbit/s for 1 s, nothing for 1 s, both ways. road: 16 down, 2 up, 4 s.
SERIES = {
    "series_id": ["road", "cell", "cell", "road"],
    "direction": ["up", "both", "both", "down"],
    "start_us": [0, 0, 1_000_000, 0],
    "dur_us": [4_000_000, 1_000_000, 1_000_000, 4_000_000],
    "rate_bps": [2e6, 8e6, 0.0, 16e6],
}
ASSIGN = {
    "device_id": ["b", "a"],
    "series_id": ["road", "cell"],
    "offset_us": [0, 500_000],
    "scale": [2.0, 1.0],
}


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
        UserError, match="no rates down for 1 of 3 clients; the first is device 'c'"
    ):
        build(context_of(tables), "traced")
    twice = ASSIGN | {"device_id": ["a", "a"], "series_id": ["road", "cell"]}
    with pytest.raises(UserError, match="device 'a' rides two series down"):
        build(context_of(tables | {"network_assign": twice}), "traced")


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
    network = build(context_of(clients=100), "shared", topology=star, attach="random", **base)
    assert len({network.route(client, UP)[1] for client in range(100)}) == 2
    with pytest.raises(UserError, match="2 access nodes for 3 clients"):
        build(context_of(), "shared", topology=star, attach=["n0", "n1"], **base)


def test_shared_attachment_by_group(tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("server north 1Gbps 5ms\nserver south 1Gbps 9ms\n")
    topology = {"name": "file", "path": str(tmp_path / "sites.txt")}
    context = context_of({"network": NETWORK}, rows=[1, 0])
    network = build(context, "shared", topology=topology, attach="group", latency=0)
    assert [network.latency_ns(client) for client in range(2)] == [9_000_000, 5_000_000]
    with pytest.raises(UserError, match="client 2 belongs to 'None'"):
        build(context_of({"network": NETWORK}), "shared", topology=topology, attach="group")


def test_default_shared_network_has_only_the_servers_link() -> None:
    network = build(context_of(clients=4), "shared", down=8e6, latency=0, server_down=8e6)
    for client in range(4):
        network.start_transfer(client, client, DOWN, MB, 0)
    assert network.next_event_ns() == 4 * S
    assert network.pop_finished(4 * S) == [0, 1, 2, 3]
