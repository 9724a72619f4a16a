"""Links that vary: rates drawn for each dispatch, latencies that follow a series, and bundles of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import truncnorm

from fedsim.errors import UserError
from fedsim.network import Direction
from fedsim.network.static import VaryingNetwork
from tests.network.test_kinds import ASSIGN, NETWORK, SERIES, build, context_of

DOWN, UP = Direction.DOWN, Direction.UP
S = 1_000_000_000
MB = 1_000_000


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
    with pytest.raises(UserError, match="no trace bundle"):
        build(context_of(), "static", down=8e6, variation="bundle")
    with pytest.raises(UserError, match="has no bandwidth_cv"):
        build(context_of({"network": NETWORK}), "static", variation="bundle")
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        build(context_of(), "static", variation=-0.1)


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
        UserError, match="latency of 'road' is not known, which client 0 rides down"
    ):
        build(context_of(series(), rows=[1]), "traced", latency="series")
    known = {"rtt_s": [0.1] * len(SERIES["series_id"])}
    with pytest.raises(UserError, match="latency of 'constant rate' is not known"):
        build(
            context_of(series(**known) | {"network": NETWORK}, rows=[2]), "traced", latency="series"
        )


def test_only_traced_links_take_the_latency_of_a_series() -> None:
    with pytest.raises(ValidationError, match="is not a latency"):
        build(context_of(), "static", latency="series")
    with pytest.raises(
        ValidationError, match="is not a latency: give a duration such as 40ms, ser"
    ):
        build(context_of(), "traced", latency=[1])


def test_nominal_rates_of_all_clients_are_those_of_each() -> None:
    tables = {"network_series": SERIES, "network_assign": ASSIGN, "network": NETWORK}
    star = {"name": "star", "sites": 2, "capacity": "3Mbps", "latency": 0}
    for network in (
        build(context_of(tables), "static", up_ratio=0.5),
        build(context_of(tables), "traced", up_ratio=0.5),
        build(context_of(tables), "shared", server_up="5Mbps"),
        build(context_of(tables), "shared", topology=star),
    ):
        for direction in Direction:
            each = [network.rate_bps(client, direction) for client in range(3)]
            assert network.rates_bps(direction).tolist() == each
