"""Transports over static, traced and shared links: the same course, whoever carries it."""

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.network.base import Direction, Network
from fedsim.network.fair import FairLinks
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.network.traced import Ride, TracedNetwork
from fedsim.network.transported import TransportedNetwork
from fedsim.network.transports.tcp import Tcp
from fedsim.units import NEVER
from tests.network.bundles import S, build, context_of, series_of

SIZES = [0, 1, 1448, 14_480, 14_481, 100_000, 1_000_000, 33_333_333]


def static(params: dict[str, Any], clients: int = 1) -> Network:
    network: Network = build(context_of(clients=clients, seed=1), "static", **params)
    return network


def shared(params: dict[str, Any], clients: int = 1) -> SharedNetwork:
    network: SharedNetwork = build(context_of(clients=clients, seed=1), "shared", **params)
    return network


def run_alone(network: SharedNetwork, client: int, direction: Direction, size: float) -> int:
    network.start_transfer(1, client, direction, size, 0)
    while (now := network.next_event_ns()) < NEVER:
        if network.pop_finished(now):
            return now
    return NEVER


LINKS = {"down": "8Mbps", "up": "2Mbps", "latency": "50ms"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("loss", [0.0, 0.001, 0.02])
@pytest.mark.parametrize("transport", ["fluid", "tcp", {"name": "tcp", "window": 40_000}])
def test_alone_on_a_shared_network_as_on_a_static_one(
    size: float, loss: float, transport: object
) -> None:
    if transport == "fluid" and loss:
        return
    params = {**LINKS, "transport": transport, "loss": loss}
    for direction in Direction:
        alone = run_alone(shared(params), 0, direction, size)
        closed = static(params).transfer_end_ns(0, direction, size, 0)
        assert alone == pytest.approx(closed, abs=2)


@pytest.mark.parametrize("size", SIZES)
def test_a_constant_series_is_a_static_link(size: float) -> None:
    series = series_of([(0, 1, 8e6), (1, 1, 8e6)])
    ride = Ride(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1))
    traced = TracedNetwork(series, down=ride, up=ride, latency_s=0.05)
    constant = StaticNetwork(latency_s=0.05, down_bps=8e6, up_bps=8e6, clients=1)
    transport = Tcp(Tcp.Params(window=40_000))
    for loss in (0.0, 0.01):
        one, other = (
            TransportedNetwork(links, transport, loss=loss, clients=1)
            for links in (traced, constant)
        )
        end = one.transfer_end_ns(0, Direction.DOWN, size, 123)
        assert end == pytest.approx(other.transfer_end_ns(0, Direction.DOWN, size, 123), abs=10)
        for share in (0.1, 0.5, 0.9):
            until = 123 + round((end - 123) * share)
            moved = [each.bytes_by(0, Direction.DOWN, size, 123, until) for each in (one, other)]
            assert moved[0] == pytest.approx(moved[1], rel=1e-6, abs=0.1)
            assert 0 <= moved[0] <= size


def test_a_series_below_and_above_the_limit() -> None:
    """2 s at 8 Mbit/s and 2 s at 1 Mbit/s, limited to 4 Mbit/s: 1 MB, then 0.25 MB, in every 4 s."""
    series = series_of([(0, 2, 8e6), (2, 2, 1e6)])
    for megabytes, seconds in [(0.5, 1), (1.0, 2), (1.25, 4), (1.75, 5), (12.5, 40), (12.25, 38)]:
        assert series.limited_wire_ns(0, 0, megabytes * 8e6 * 1e9, 4e6) == seconds * S
        assert series.limited_work_between(0, 0, seconds * S, 4e6) == megabytes * 8e6 * 1e9


def test_the_limit_of_a_flow_enters_the_fair_shares() -> None:
    """Three flows on 9 Mbit/s, one limited to 1: the others have 4 each, and 9 when it is alone."""
    links = FairLinks([9e6])
    links.start(1, [0], 1e6, 0, 1e6)
    links.start(2, [0], 1e6, 0)
    links.start(3, [0], 1e6, 0)
    assert [links.rate_bps(flow) for flow in (1, 2, 3)] == [1e6, 4e6, 4e6]
    assert links.next_completion_ns() == 2 * S
    links.cancel(1, S)
    assert [links.rate_bps(flow) for flow in (2, 3)] == [4.5e6, 4.5e6]
    links.start(4, [], 1e6, S, 8e6)
    assert links.rate_bps(4) == 8e6


def test_a_waiting_sender_leaves_the_link_to_others() -> None:
    """Between its windows a transfer uses no link, so another has all of it."""
    params = {"down": "80Mbps", "up": "80Mbps", "latency": "100ms", "server_down": "8Mbps"}
    network = shared(
        {**params, "transport": {"name": "tcp", "connection": "reuse", "header": 0}}, 2
    )
    network.start_transfer(1, 0, Direction.DOWN, 14_480, 0)
    network.start_transfer(2, 1, Direction.DOWN, 14_480, 0)
    finished: dict[int, int] = {}
    while (now := network.next_event_ns()) < NEVER:
        finished |= dict.fromkeys(network.pop_finished(now), now)
    # Two initial windows share 8 Mbit/s, then travel 100 ms.
    assert finished == {1: 2 * 14_480_000 + 100_000_000, 2: 2 * 14_480_000 + 100_000_000}


def test_canceling_counts_bytes_without_headers() -> None:
    network = shared({**LINKS, "transport": "tcp"})
    network.start_transfer(1, 0, Direction.DOWN, 144_800, 0)
    # The connection is open at 100 ms, and the links carry the first window from 150 to 165 ms.
    while (now := network.next_event_ns()) < 200_000_000:
        network.pop_finished(now)
    assert network.cancel(1, 200_000_000) == pytest.approx(14_480)
    assert network.next_event_ns() == NEVER


def test_loss_needs_a_transport_that_accounts_for_it() -> None:
    with pytest.raises(UserError, match="does not model lost packets"):
        static({**LINKS, "loss": 0.01})
    with pytest.raises(UserError, match=r"2 values for 1 client\n"):
        static({**LINKS, "loss": [0.01, 0.0], "transport": "tcp"})
