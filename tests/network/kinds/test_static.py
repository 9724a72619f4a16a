"""Static links from the parameters of a scenario."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import truncnorm

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.static import StaticNetwork, VaryingNetwork
from tests.network.bundles import MB, NETWORK, S, build, context_of, rates

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
