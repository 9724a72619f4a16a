"""Transfers over shared links against hand-worked cases."""

import numpy as np
import pytest

from fedsim.network.base import Direction
from fedsim.network.graphs import Direct, Star, Tree
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.units import NEVER
from tests.network.bundles import context_of

DOWN, UP = Direction.DOWN, Direction.UP
S = 1_000_000_000
MS = 1_000_000
MB = 1_000_000


def run_out(network: SharedNetwork) -> list[tuple[int, list[int]]]:
    """What finishes when, instant by instant."""
    finished = []
    while (time_ns := network.next_event_ns()) < NEVER:
        transfers = network.pop_finished(time_ns)
        if transfers:
            finished.append((time_ns, transfers))
    return finished


def two_sites(**limits: float) -> SharedNetwork:
    """Two sites at 8 Mbit/s and 5 ms; clients 0 and 2 on site 0, 1 on site 1; access 8 down, 4 up, 20 ms."""
    topology = Star(name="star", sites=2, capacity=8e6, latency=0.005).topology(
        context_of(clients=10)
    )
    return SharedNetwork(
        topology,
        attachment=[0, 1, 0],
        down_bps=8e6,
        up_bps=4e6,
        latency_s=np.array([0.02, 0.02, 0.04]),
        **limits,
    )


def test_a_transfer_alone_is_a_static_one() -> None:
    network = two_sites()
    static = StaticNetwork(latency_s=[0.025, 0.025, 0.045], down_bps=8e6, up_bps=4e6, clients=3)
    for transfer, (client, direction) in enumerate([(0, DOWN), (2, UP), (1, UP)]):
        start_ns = transfer * 10 * S
        network.start_transfer(transfer, client, direction, MB, start_ns)
        end_ns = static.transfer_end_ns(client, direction, MB, start_ns)
        assert run_out(network) == [(end_ns, [transfer])]
        assert network.transfer_end_ns(client, direction, MB, start_ns) == end_ns
        assert network.rate_bps(client, direction) == static.rate_bps(client, direction)
        assert network.latency_ns(client, direction) == static.latency_ns(client, direction)


@pytest.mark.parametrize(
    ("limits", "transfers", "finished"),
    [
        # 8 Mbit each. Client 0 enters at 25 ms and has 0.16 Mbit when client 2 joins at 45 ms; the other 7.84 Mbit take
        # 1.96 s at 4 Mbit/s, and then the last 0.16 Mbit of client 2 take 20 ms. Client 1 is alone on its site.
        (
            {},
            [(client, DOWN, MB, 0) for client in range(3)],
            [(S + 25 * MS, [1]), (2 * S + 5 * MS, [0]), (2 * S + 25 * MS, [2])],
        ),
        # Down and up do not meet.
        ({}, [(0, DOWN, MB, 0), (0, UP, MB, 0)], [(S + 25 * MS, [0]), (2 * S + 25 * MS, [1])]),
        # The server's link. Clients 0 and 1 have 0.06 Mbit each when client 2 joins at 45 ms; 7.94 Mbit take 3.97 s at
        # 2 Mbit/s each, and the last 0.06 Mbit of client 2 take 15 ms at its own 4 Mbit/s.
        (
            {"server_up_bps": 6e6},
            [(client, UP, MB, 0) for client in range(3)],
            [(4 * S + 15 * MS, [0, 1]), (4 * S + 30 * MS, [2])],
        ),
        # An empty message takes the latency.
        ({}, [(2, UP, 0, 7)], [(45 * MS + 7, [0])]),
    ],
)
def test_hand_worked_ends(
    limits: dict[str, float],
    transfers: list[tuple[int, Direction, int, int]],
    finished: list[tuple[int, list[int]]],
) -> None:
    network = two_sites(**limits)
    for number, transfer in enumerate(transfers):
        network.start_transfer(number, *transfer)
    assert run_out(network) == finished


def test_a_cancelled_transfer_frees_its_share() -> None:
    network = two_sites()
    network.start_transfer(0, 0, DOWN, 2 * MB, 0)
    network.start_transfer(2, 2, DOWN, 2 * MB, 0)
    # 0.16 Mbit alone from 25 to 45 ms and 3.82 Mbit by 1 s; client 2 has 12.18 of 16 Mbit left.
    assert network.cancel(0, S) == 3.98e6 / 8
    assert run_out(network) == [(S + 1_522_500_000, [2])]
    with pytest.raises(KeyError):
        network.cancel(0, 3 * S)


def test_a_transfer_cancelled_during_its_latency_has_moved_nothing() -> None:
    network = two_sites()
    network.start_transfer(0, 0, DOWN, MB, 0)
    assert network.next_event_ns() == 25 * MS
    assert network.cancel(0, 10 * MS) == 0
    assert network.next_event_ns() == NEVER
    # Its number may be used again, and the old start means nothing to the new transfer.
    network.start_transfer(0, 0, DOWN, MB, 20 * MS)
    assert run_out(network) == [(S + 45 * MS, [0])]


def test_arrivals_at_one_instant_come_in_order_of_start() -> None:
    topology = Direct(name="direct").topology(context_of(clients=10))
    network = SharedNetwork(
        topology, attachment=np.zeros(4, int), down_bps=8e6, up_bps=8e6, latency_s=0
    )
    for transfer, client in ((9, 3), (1, 0), (5, 2), (3, 1)):
        network.start_transfer(transfer, client, UP, MB, 0)
    assert run_out(network) == [(S, [9, 1, 5, 3])]


def test_a_thousand_clients_on_a_tree_finish_together() -> None:
    """Equal clients on a symmetric tree: the ingress is full until all end at once, whatever the order."""
    topology = Tree(name="tree", fan_out=[5, 10], capacity=[1e9, 1e8]).topology(
        context_of(clients=10)
    )
    network = SharedNetwork(
        topology,
        attachment=np.arange(1000) % 50,
        down_bps=1e7,
        up_bps=1e7,
        latency_s=0,
        server_up_bps=5e8,
    )
    for client in range(1000):
        network.start_transfer(client, client, UP, MB, 0)
    # 1000 x 8 Mbit through 500 Mbit/s, then two links of 5 ms.
    assert run_out(network) == [(16 * S + 10 * MS, list(range(1000)))]


@pytest.mark.parametrize("seed", range(5))
def test_no_transfer_ends_after_its_latest_end(seed: int) -> None:
    """One transfer per client and direction, from drawn instants on."""
    generator = np.random.default_rng(seed)
    network = two_sites(server_down_bps=6e6, server_up_bps=5e6)
    starts_ns = np.sort(generator.integers(0, 3 * S, 6)).tolist()
    latest_ns = {}
    ends_ns: dict[int, int] = {}
    for transfer, pair in enumerate(generator.permutation(6).tolist()):
        now_ns, client, direction = starts_ns[transfer], pair // 2, Direction(pair % 2)
        while (time_ns := network.next_event_ns()) <= now_ns:
            ends_ns |= dict.fromkeys(network.pop_finished(time_ns), time_ns)
        size_bytes = int(generator.integers(0, 2 * MB))
        network.start_transfer(transfer, client, direction, size_bytes, now_ns)
        latest_ns[transfer] = network.latest_end_ns(client, direction, size_bytes, now_ns)
    for time_ns, transfers in run_out(network):
        ends_ns |= dict.fromkeys(transfers, time_ns)
    assert ends_ns.keys() == latest_ns.keys()
    assert all(ends_ns[transfer] <= latest_ns[transfer] < NEVER for transfer in latest_ns)
