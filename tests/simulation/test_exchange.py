"""Rounds that exchange updates among clients: on paper for two to five, by brute force for more."""

from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.network.exchanges.collectives import Exchange, Ring, Tree
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.network.topology import Topology
from fedsim.parts.parameters import Parameters
from fedsim.units import to_ns
from tests.simulation.harness import Book, online, simulate

RING, TREE = Ring(Parameters()), Tree(Parameters())


def rounds(clients: int, exchange: Exchange = RING, **world) -> Book:
    """Two rounds of all clients with one local step of a second; 120 MB take 1 s per 120 MB/s."""
    given = {"step_s": [1.0] * clients, "steps": 1, "rounds": 2, "down_bps": 960e6, "up_bps": 960e6}
    sizes = {"bytes_down": 120e6, "bytes_up": 120e6, "latency_s": 0.0}
    return simulate(**{**given, **sizes, "exchange": exchange, **world})


def by_client(book: Book) -> list[dict[str, Any]]:
    """The rows of the first round, in order of clients."""
    return sorted((row for row in book.rows if row["round"] == 0), key=lambda row: row["client"])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("exchange", "clients", "latency_s", "seconds", "sent"),
    [
        (RING, 1, 0.0, 0.0, 0),
        # 2 (P - 1) steps of 1/P of a second, and twice the latency of an access link
        (RING, 2, 0.0, 1.0, 120e6),
        (RING, 3, 0.0, 4 / 3, 160e6),
        (RING, 4, 0.0, 1.5, 180e6),
        (RING, 5, 0.0, 1.6, 192e6),
        (RING, 2, 0.25, 2.0, 120e6),
        (RING, 4, 0.25, 4.5, 180e6),
        (RING, 5, 0.25, 5.6, 192e6),
        # ceil(log2 P) steps up and as many down, of a whole second
        (TREE, 1, 0.0, 0.0, 0),
        (TREE, 2, 0.0, 2.0, 120e6),
        (TREE, 3, 0.0, 4.0, None),
        (TREE, 4, 0.25, 6.0, None),
        (TREE, 5, 0.25, 9.0, None),
    ],
)
def test_an_all_reduce_on_equal_links(exchange, clients, latency_s, seconds, sent, shared) -> None:
    book = rounds(clients, exchange, latency_s=latency_s, shared=shared)
    download_s = 1 + latency_s
    for number in range(2 * clients):
        row = book.row(number)
        first = number < clients
        assert row["downloaded"] == (download_s if first else row["dispatched"])
        assert to_ns(row["arrived"] - row["computed"]) == pytest.approx(to_ns(seconds), abs=1.5)
        assert to_ns(row["upload"]) == pytest.approx(to_ns(seconds), abs=1.5)
        if sent is not None:
            assert row["bytes_up"] == sent
            assert row["bytes_down"] == sent + (120e6 if first else 0)
    assert [one.version for one in book.aggregates] == [1, 2]


def test_bytes_of_a_tree_of_four() -> None:
    """1 -> 0 and 3 -> 2, then 2 -> 0; and back."""
    rows = by_client(rounds(4, TREE, rounds=1))
    sent = [row["bytes_up"] / 120e6 for row in rows]
    received = [row["bytes_down"] / 120e6 - 1 for row in rows]
    assert sent == [2, 1, 2, 1]
    assert received == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("clients", "up", "down", "latency_s", "step_ns"),
    [
        # the slower end of 0 -> 1, 1 -> 2, 2 -> 0 carries 40 MB
        (3, [320e6, 640e6, 960e6], [960e6, 960e6, 960e6], [0, 0, 0], 1_000_000_000),
        (3, [960e6, 640e6, 960e6], [960e6, 960e6, 80e6], [0, 0, 0], 4_000_000_000),
        # 0 -> 1: 0.5 s + 0.3 s; 1 -> 0: 0.125 s + 0.3 s, with 60 MB
        (2, [960e6, 3840e6], [3840e6, 960e6], [0.1, 0.2], 800_000_000),
        (4, [240e6, 960e6, 960e6, 960e6], [960e6] * 4, [0, 0.5, 0, 0], 1_500_000_000),
        (5, [192e6, 384e6, 384e6, 384e6, 384e6], [960e6] * 5, [1, 0, 0, 0, 0.25], 2_000_000_000),
    ],
)
def test_the_slowest_step_of_a_ring(clients, up, down, latency_s, step_ns) -> None:
    links = {"down_bps": down, "up_bps": up, "latency_s": latency_s}
    book = rounds(clients, network=StaticNetwork(clients=clients, **links), bytes_down=0)
    ready = max(row["computed"] for row in book.rows if row["round"] == 0)
    assert to_ns(book.row(0)["arrived"] - ready) == 2 * (clients - 1) * step_ns


def chunk_by_chunk(sent_ns: list[int]) -> int:
    """End of a ring whose members do not wait for one another: a member sends its next chunk when its last one and that
    of the member before it have arrived. ``sent_ns`` has the time of a chunk from each member to the next."""
    arrived = [0] * len(sent_ns)
    for _ in range(2 * (len(sent_ns) - 1)):
        arrived = [max(arrived[i], arrived[i - 1]) + each for i, each in enumerate(sent_ns)]
    return max(arrived)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_waiting_for_the_whole_step_does_not_slow_a_ring(data) -> None:
    """On links that are not shared the slowest link alone decides, so the exact order of chunks does not matter."""
    members = data.draw(st.integers(2, 24))
    rate = st.sampled_from([8e6, 16e6, 80e6, 800e6])
    up, down = (data.draw(st.lists(rate, min_size=members, max_size=members)) for _ in range(2))
    wait = st.sampled_from([0.0, 0.001, 0.04])
    latency = data.draw(st.lists(wait, min_size=members, max_size=members))
    network = StaticNetwork(clients=members, down_bps=down, up_bps=up, latency_s=latency)
    size = 1000.0 * members
    book = rounds(members, network=network, bytes_down=0, bytes_up=size, rounds=1)
    ready = max(row["computed"] for row in book.rows)
    sent = [
        to_ns(latency[a]) + to_ns(latency[b]) + round(8e12 / min(up[a], down[b]))
        for a, b in pairwise([*range(members), 0])
    ]
    assert to_ns(book.row(0)["arrived"]) - to_ns(ready) == chunk_by_chunk(sent)


def two_sites(capacity_bps: float) -> SharedNetwork:
    """Clients 0 and 1 at one site, 2 and 3 at the other, with a link between the sites."""
    graph = nx.Graph()
    graph.add_edge("server", "a", capacity_bps=1e15, latency_s=0.0)
    graph.add_edge("a", "b", capacity_bps=capacity_bps, latency_s=0.5)
    topology = Topology.from_graph(graph, server="server", access=["a", "b"])
    rate = {"down_bps": 960e6, "up_bps": 960e6}
    return SharedNetwork(topology, attachment=[0, 0, 1, 1], latency_s=0.0, **rate)


@pytest.mark.parametrize(
    ("exchange", "attachment", "seconds"),
    [
        # One transfer in each direction crosses: 0.25 s at 960 Mbit/s, or 1 s at 240 Mbit/s; and 0.5 s.
        (RING, [0, 0, 1, 1], 6 * 1.5),
        # 0, 2, 1 and 3 alternate: two transfers in each direction share it.
        (RING, [0, 1, 0, 1], 6 * 2.5),
        # 1 -> 0 and 3 -> 2 within the sites, 2 -> 0 across: 1 s, 4 s and 0.5 s, and back.
        (TREE, [0, 0, 1, 1], 2 * (1 + 4.5)),
        # 1 -> 0 and 3 -> 2 cross and share, 2 -> 0 within: 8 s and 0.5 s, 1 s, and back.
        (TREE, [0, 1, 0, 1], 2 * (8.5 + 1)),
    ],
)
def test_contention_on_a_shared_link(exchange, attachment, seconds) -> None:
    network = two_sites(240e6)
    shared = SharedNetwork(
        network.topology, attachment=attachment, latency_s=0.0, down_bps=960e6, up_bps=960e6
    )
    book = rounds(4, exchange, network=shared, bytes_down=0)
    row = book.row(4)
    assert to_ns(row["arrived"] - row["computed"]) == pytest.approx(to_ns(seconds), abs=8)


@pytest.mark.parametrize("shared", [False, True])
def test_a_member_that_leaves_breaks_the_ring(shared) -> None:
    """The ring of three begins at 2 s (1 s download, 1 s step) and needs 4/3 s. Client 1 leaves at 2.5 s, in the second
    third of a second; the others notice it 2 s later, and need 1 s for a ring of two."""
    away = online([(0.0, 1e6)], [(0.0, 2.5)], [(0.0, 1e6)])
    book = rounds(3, availability=away, failure_detection=2.0, rounds=1, shared=shared)
    rows = by_client(book)
    assert [row["arrived"] for row in rows[::2]] == [5.5, 5.5]
    assert rows[1]["outcome"] != rows[0]["outcome"]
    assert [row["upload"] for row in rows] == [3.5, 0.5, 3.5]
    # a chunk and a half of 40 MB, then a ring of two
    assert [row["bytes_up"] for row in rows] == [60e6 + 120e6, 60e6, 60e6 + 120e6]
    assert [row["aggregated_version"] for row in rows] == [1, -1, 1]


def test_a_client_that_missed_a_round_downloads() -> None:
    """Client 1 is away from 2.2 s to 4.5 s and joins the fifth round; the other never downloads again."""
    away = online([(0.0, 1e6)], [(0.0, 2.2), (4.5, 1e6)])
    book = rounds(2, availability=away, rounds=6)
    loaded = {
        (row["client"], row["round"]) for row in book.rows if row["downloaded"] > row["dispatched"]
    }
    assert loaded == {(0, 0), (1, 0), (1, 4)}
    assert sum(row["client"] == 1 for row in book.rows) == 3


def test_a_client_that_crashes_before_the_barrier_does_not_block_it() -> None:
    away = online([(0.0, 1e6)], [(0.0, 1.5)], [(0.0, 1e6)])
    book = rounds(3, availability=away, failure_detection=3.0, rounds=1)
    assert by_client(book)[0]["arrived"] == 1.5 + 3 + 1


def test_a_client_left_alone_at_the_instant_of_its_last_step() -> None:
    """Client 1 leaves at 1.5 s; it is noticed at 4.5 s, when client 0 has done its step."""
    away = online([(0.0, 1e6)], [(0.0, 1.5)])
    book = rounds(2, availability=away, failure_detection=3.0, step_s=[3.5, 1.0])
    assert by_client(book)[0]["arrived"] == 4.5


def test_the_slowest_client_holds_up_the_ring() -> None:
    """Its waiting counts as the upload of the others."""
    rows = by_client(rounds(2, step_s=[1.0, 5.0], rounds=1))
    assert [row["upload"] for row in rows] == [5.0, 1.0]
    assert [row["arrived"] for row in rows] == [7.0, 7.0]


def test_a_battery_that_is_empty_breaks_the_ring() -> None:
    """Download 1 W, step 2 W, upload 3 W: 3 J after the step, of 6 J 3 J are left, enough for 1 s of 4/3 s."""
    energy = {"battery_j": 6.0, "battery_floor": 0.0, "recharge_w": 1e-9}
    book = rounds(3, energy=energy, rounds=None, until_s=10.0)
    assert {book.row(number)["ended"] for number in range(3)} == {3.0}
    assert {book.row(number)["aggregated_version"] for number in range(3)} == {-1}
