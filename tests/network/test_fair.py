"""Max-min fair sharing against hand-worked cases and against an exact fluid integrator."""

import itertools
import random
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsim.network.fair import FairLinks, fill_level
from fedsim.units import NEVER

from .exact import Flow, filling, integrate

S = 1_000_000_000
MB = 1_000_000


def run_out(network: FairLinks) -> list[tuple[int, int]]:
    """All completions as (instant, flow)."""
    done: list[tuple[int, int]] = []
    while (time_ns := network.next_completion_ns()) < NEVER:
        done += network.pop_completed(time_ns)
    return done


def test_a_flow_alone_has_its_narrowest_link() -> None:
    network = FairLinks([16e6, 8e6, 12e6])
    network.start(7, [0, 1, 2], 3 * MB, S)
    assert network.rate_bps(7) == 8e6
    assert network.next_completion_ns() == 4 * S
    assert network.pop_completed(4 * S - 1) == []
    assert network.pop_completed(4 * S) == [(4 * S, 7)]
    assert network.next_completion_ns() == NEVER
    assert 7 not in network


@pytest.mark.parametrize(
    ("capacities", "flows", "done"),
    [
        # 8 Mbit/s. 0: 2 MB at 0 s; 1: 2 MB at 1 s. 0 alone moves 1 MB, then both move 0.5 MB/s: 0 is done at 3 s, and
        # 1, with 1 MB left, alone again, at 4 s.
        ([8e6], [(0, [0], 2, 0), (1, [0], 2, S)], [(3 * S, 0), (4 * S, 1)]),
        # Links of 10, 4 and 6 Mbit/s in a row; flow 0 passes all, flows 1, 2, 3 one each. Link 1 fills first, at 2;
        # flow 0 held at 2 leaves 8 on link 0 and 4 on link 2. 2 s: flow 1 is done. 4 s: flow 2 is done (1 MB at
        # 2 Mbit/s); flow 0 has moved 1 MB and then has min(10, 4, 3) = 3 Mbit/s, flow 3 too, with 2 MB left. Flow 0 is
        # done 8/3 s later; flow 3 has moved 1 MB more by then, and the last one goes at 6 Mbit/s in 4/3 s.
        (
            [10e6, 4e6, 6e6],
            [(0, [0, 1, 2], 2, 0), (1, [0], 2, 0), (2, [1], 1, 0), (3, [2], 4, 0)],
            [(2 * S, 1), (4 * S, 2), (round(Fraction(20, 3) * S), 0), (8 * S, 3)],
        ),
        # A broken link delivers nothing.
        ([0.0, 8e6], [(0, [0, 1], 1, 0), (1, [1], 1, 0), (2, [0], 1, 0)], [(S, 1)]),
        # Links without a limit carry at once.
        (
            [np.inf, 8e6],
            [(0, [0], 1, 3), (1, [], 1, 3), (2, [0, 1], 1, 3)],
            [(3, 0), (3, 1), (S + 3, 2)],
        ),
    ],
)
def test_hand_worked_completions(
    capacities: list[float],
    flows: list[tuple[int, list[int], int, int]],
    done: list[tuple[int, int]],
) -> None:
    network = FairLinks(capacities)
    for flow, route, size_mb, start_ns in flows:
        network.start(flow, route, size_mb * MB, start_ns)
    assert run_out(network) == done


def test_cancel_gives_the_bytes_moved() -> None:
    network = FairLinks([8e6])
    network.start(0, [0], 2 * MB, 0)
    network.start(1, [0], 2 * MB, S)
    assert network.cancel(0, 2 * S) == 1.5 * MB
    assert run_out(network) == [(int(3.5 * S), 1)]
    network.start(2, [0], MB, 4 * S)
    assert network.cancel(2, 4 * S) == 0
    with pytest.raises(KeyError):
        network.cancel(2, 4 * S)


def test_completions_at_one_instant_come_in_order_of_start() -> None:
    network = FairLinks([8e6, 8e6, 8e6])
    for flow, link in ((5, 2), (3, 0), (4, 1)):
        network.start(flow, [link], MB, 0)
    network.start(9, [0], 0, S // 2)
    assert network.next_completion_ns() == S // 2
    assert network.pop_completed(2 * S) == [(S // 2, 9), (S, 5), (S, 3), (S, 4)]


@given(
    offers=st.lists(st.one_of(st.integers(0, 1000), st.just(2**40)), min_size=1, max_size=30),
    share=st.fractions(0, 1, max_denominator=1000),
    guess=st.one_of(st.floats(0, 2000), st.just(float("inf"))),
)
def test_a_level_fills_the_link_whatever_the_guess(
    offers: list[int], share: Fraction, guess: float
) -> None:
    capacity = float(share * sum(offers))
    level = fill_level(np.array(offers, dtype=float), capacity, guess)
    if capacity == sum(offers):
        assert level == np.inf
    else:
        exact = sum(min(Fraction(offer), Fraction(level)) for offer in offers)
        assert float(exact) == pytest.approx(capacity, rel=1e-14)


@st.composite
def routes_on_a_graph(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]]]:
    """A random graph (tree, scale-free or Waxman) and shortest routes between random nodes, or to node 0."""
    seed = draw(st.integers(0, 10**6))
    nodes = draw(st.integers(3, 12))
    kind = draw(st.sampled_from(["tree", "scale-free", "waxman", "path"]))
    if kind == "tree":
        graph = nx.random_labeled_tree(nodes, seed=seed)
    elif kind == "scale-free":
        graph = nx.barabasi_albert_graph(nodes, 2, seed=seed)
    elif kind == "path":
        graph = nx.path_graph(nodes)
    else:
        graph = nx.waxman_graph(nodes, beta=0.9, alpha=0.5, seed=seed)
        graph = nx.compose(graph, nx.path_graph(nodes))
    links = {arc: number for number, arc in enumerate(graph.to_directed().edges)}
    chosen = random.Random(seed)
    to_server = draw(st.booleans())
    routes = []
    for _ in range(draw(st.integers(1, 14))):
        source, target = chosen.sample(range(nodes), 2)
        if to_server and source != 0:
            target = 0
        path = nx.shortest_path(graph, source, target)
        routes.append(tuple(links[arc] for arc in itertools.pairwise(path)))
    return len(links), routes


CAPACITIES_BPS = st.one_of(
    st.sampled_from([10**6, 2 * 10**6, 3 * 10**6, 10**7]),  # ties and exact fits
    st.integers(10**5, 10**8),
)


@settings(deadline=None, max_examples=70, suppress_health_check=[HealthCheck.too_slow])
@given(graph=routes_on_a_graph(), data=st.data())
def test_rates_are_those_of_exact_filling(
    graph: tuple[int, list[tuple[int, ...]]], data: st.DataObject
) -> None:
    links, routes = graph
    capacity = data.draw(st.lists(CAPACITIES_BPS, min_size=links, max_size=links))
    network = FairLinks(capacity)
    alive: dict[int, tuple[int, ...]] = {}
    for flow, route in enumerate(routes):
        network.start(flow, route, 10**15, 0)
        alive[flow] = route
        if data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(alive)))
            network.cancel(gone, 0)
            del alive[gone]
        if data.draw(st.booleans()):
            expected = filling(alive, [Fraction(value) for value in capacity])
            for number, rate in expected.items():
                assert network.rate_bps(number) == pytest.approx(float(rate), rel=1e-12)


@settings(deadline=None, max_examples=70, suppress_health_check=[HealthCheck.too_slow])
@given(graph=routes_on_a_graph(), data=st.data())
def test_completions_are_those_of_exact_integration(
    graph: tuple[int, list[tuple[int, ...]]], data: st.DataObject
) -> None:
    links, routes = graph
    capacity = data.draw(st.lists(CAPACITIES_BPS, min_size=links, max_size=links))
    starts = data.draw(st.lists(st.integers(0, 60_000), min_size=len(routes), max_size=len(routes)))
    sizes = data.draw(
        st.lists(st.integers(10 * MB, 1000 * MB), min_size=len(routes), max_size=len(routes))
    )
    lives = data.draw(
        st.lists(
            st.one_of(st.none(), st.integers(1, 60_000)), min_size=len(routes), max_size=len(routes)
        )
    )
    flows = [
        Flow(
            Fraction(start, 1000),
            Fraction(8 * size),
            route,
            None if life is None else Fraction(start + life, 1000),
        )
        for start, size, route, life in zip(starts, sizes, routes, lives, strict=True)
    ]
    done, cut = integrate(flows, [Fraction(value) for value in capacity])

    network = FairLinks(capacity)
    events = sorted(
        [(flow.start, 1, number) for number, flow in enumerate(flows)]
        + [(flow.stop, 0, number) for number, flow in enumerate(flows) if flow.stop is not None]
    )
    finished: dict[int, int] = {}
    moved: dict[int, float] = {}
    for instant, is_start, number in events:
        now_ns = int(instant * S)
        finished |= {flow: time_ns for time_ns, flow in network.pop_completed(now_ns)}
        if is_start:
            network.start(number, routes[number], sizes[number], now_ns)
        elif number not in finished:
            moved[number] = network.cancel(number, now_ns)
    finished |= {flow: time_ns for time_ns, flow in run_out(network)}

    for number, exact_s in done.items():
        # A completion within a grain of the cancellation may fall on either side of it.
        if number in moved:
            assert moved[number] == pytest.approx(sizes[number], rel=1e-9)
        else:
            assert abs(finished[number] - exact_s * S) <= exact_s * S / 10**9
    for number, bits in cut.items():
        if number in finished:
            assert float(bits) == pytest.approx(8 * sizes[number], rel=1e-9)
        else:
            assert moved[number] == pytest.approx(float(bits / 8), rel=1e-9, abs=1)
    assert len(finished) + len(moved) == len(flows)


@pytest.mark.parametrize("seed", range(4))
def test_every_flow_keeps_a_bottleneck_in_a_large_graph(seed: int) -> None:
    """Feasible, and each flow has a full link on which no flow is faster: necessary and sufficient for fairness."""
    rng = np.random.default_rng(seed)
    graph = nx.barabasi_albert_graph(60, 2, seed=seed)
    links = {arc: number for number, arc in enumerate(graph.to_directed().edges)}
    capacity = rng.lognormal(17, 1, len(links)).round(-5)
    paths = dict(nx.all_pairs_shortest_path(graph))
    network = FairLinks(capacity)
    routes: dict[int, list[int]] = {}
    now_ns = 0
    for flow in range(600):
        source, target = rng.choice(60, 2, replace=False).tolist()
        routes[flow] = [links[arc] for arc in itertools.pairwise(paths[source][target])]
        network.start(flow, routes[flow], rng.lognormal(16, 1), now_ns)
        now_ns = min(network.next_completion_ns(), now_ns + int(rng.integers(1, S // 10)))
        for _, done in network.pop_completed(now_ns):
            del routes[done]
        if flow % 20 == 0:
            rates = {number: network.rate_bps(number) for number in routes}
            load = np.zeros(len(links))
            fastest = np.zeros(len(links))
            for number, route in routes.items():
                load[route] += rates[number]
                fastest[route] = np.maximum(fastest[route], rates[number])
            assert (load <= capacity * (1 + 1e-12)).all()
            full = load >= capacity * (1 - 1e-12)
            for number, route in routes.items():
                assert (full[route] & (rates[number] >= fastest[route] * (1 - 1e-12))).any()
    assert len(routes) > 20


def test_links_that_flows_cannot_fill_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes of thousands of links took time in proportion to their square."""
    network = FairLinks([1e9] * 50 + [8e6] * 20)
    monkeypatch.delattr(np, "bincount")
    for flow in range(20):
        network.start(flow, [*range(50), 50 + flow], MB, 0)
    assert run_out(network) == [(S, flow) for flow in range(20)]
