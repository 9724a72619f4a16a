"""Traced links from the parameters of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.traces.tables import make_table
from tests.network.bundles import ASSIGN, MB, NETWORK, SERIES, S, build, context_of, rates

DOWN, UP = Direction.DOWN, Direction.UP


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
