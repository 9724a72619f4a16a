"""Courses: their pieces one after another, by hand; and the same over static, traced and shared links."""

import math
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.network.base import Direction, Network
from fedsim.network.fair import FairLinks
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.network.traced import Ride, TracedNetwork
from fedsim.network.transport import Course, Piece, TransportedNetwork
from fedsim.network.transports.tcp import Tcp
from fedsim.units import NEVER
from tests.network.bundles import S, build, context_of, series_of

BPS = 8e9  # one byte per nanosecond


def carry(piece: Piece) -> int:
    """One byte per nanosecond, or the limit of the piece if that is slower."""
    return piece.start_ns + round(piece.size_bytes * 8e9 / min(BPS, piece.limit_bps))


def carried(piece: Piece, until_ns: int) -> float:
    return (until_ns - piece.start_ns) * min(BPS, piece.limit_bps) / 8e9


# 10 bytes at 0, 20 at 50, 40 at 100, the last 30 at 150.
ROUNDS = Course(100.0, windows_bytes=(10, 20, 40, 30), round_ns=50)
STAGES = ((30.0, BPS / 2), (60.0, BPS / 3))
STAGED = Course(100.0, windows_bytes=(10,), round_ns=50, stages=STAGES, pause_ns=5)


@pytest.mark.parametrize(
    ("course", "start_ns", "end_ns"),
    [
        (Course(100.0, setup_ns=7), 1000, 1000 + 7 + 100),
        (Course(0.0, setup_ns=40), 0, 40),
        (ROUNDS, 0, 180),
        # 10 bytes at 0, 60 at 50 until 110; from then on the link is never idle.
        (Course(1000.0, windows_bytes=(10, 60, 120, 240, 480, 90), round_ns=50), 0, 50 + 990),
        (STAGED, 0, 5 + 50 + 2 * 30 + 3 * 60),
    ],
)
def test_hand_worked_ends(course: Course, start_ns: int, end_ns: int) -> None:
    assert course.end_ns(start_ns, carry) == end_ns
    assert course.alone_s(BPS) == pytest.approx((course.end_ns(0, carry)) / 1e9)


def test_a_queue_that_others_fill_makes_rounds_longer() -> None:
    """At half the rate: 10 bytes at 0, 20 at 100 (50 and 50 in the queue), 70 at 200, which take 140."""
    course = Course(100.0, windows_bytes=(10, 20, 70), round_ns=50, rate_bps=BPS, queue_ns=50)
    slow = Course(100.0, windows_bytes=(10, 20, 70), round_ns=50)
    assert course.end_ns(0, lambda piece: piece.start_ns + round(2 * piece.size_bytes)) == 340
    assert slow.end_ns(0, lambda piece: piece.start_ns + round(2 * piece.size_bytes)) == 240
    assert course.end_ns(0, carry) == slow.end_ns(0, carry) == 170


@pytest.mark.parametrize(
    ("until_ns", "sent"), [(0, 0), (5, 5), (30, 10), (50, 10), (60, 20), (75, 30), (999, 100)]
)
def test_bytes_sent_by_an_instant(until_ns: int, sent: float) -> None:
    assert ROUNDS.sent_by(0, until_ns, carry, carried) == sent
    assert STAGED.sent_by(0, 5 + 50 + 60 + 90, carry, carried) == 10 + 30 + 30


def test_links_that_are_down_never_end_it() -> None:
    course = Course(100.0, windows_bytes=(10, 90), round_ns=50)
    assert course.end_ns(0, lambda piece: NEVER) == NEVER
    assert course.alone_s(0.0) == math.inf


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
