"""The fast path of undisturbed dispatches against the definition of a dispatch's life."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.network.static import StaticNetwork
from fedsim.network.traced import RateSeries, Ride, TracedNetwork
from fedsim.scenario.model import Failures
from fedsim.simulation.dispatch_process import DispatchProcess, Plan
from fedsim.simulation.dispatches import at_once, undisturbed
from fedsim.simulation.workload import Workload
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import Ending
from tests.simulation.harness import handed_out, make_population, online, simulate

S = 1_000_000_000
RATES = [0.0, 1e6, 8e6, float("inf")]
FAILURES = [
    {},
    {},
    {"crash_rate": 400.0},
    {"upload_loss": 0.4, "upload_retries": 1},
    {"crash_rate": 100.0, "upload_loss": 0.3},
]
COMPUTE: list[dict[str, Any]] = [
    {},
    {},
    {"jitter": {"cv": 0.4}},
    {"stragglers": {"probability": 0.5}},
    {"step_noise": {"sd": 0.3}},
    {"perturbations": [{"at": 12, "until": 33.5, "factor": 2.5}]},
]


def traced(rates: list[float]) -> TracedNetwork:
    """Down and up, each with a rate per second that repeats every few seconds."""
    half = len(rates) // 2
    series = RateSeries(
        series=np.repeat([0, 1], [half, half]),
        start_ns=np.tile(np.arange(half) * S, 2),
        duration_ns=np.full(2 * half, S),
        rate_bps=np.array([min(rate, 1e9) for rate in rates]),
        on_end="wrap",
        names=["down", "up"],
    )
    down, up = (Ride(np.full(2, row), np.zeros(2, np.int64), np.ones(2)) for row in (0, 1))
    return TracedNetwork(series, down=down, up=up, latency_s=0.25)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Worlds of two clients whose seconds are whole, so that phases end as a client leaves or comes."""
    rates = draw(st.lists(st.sampled_from(RATES), min_size=4, max_size=4))
    latency_s = draw(st.sampled_from([0.0, 0.0, 0.25, 1.0]))
    network = (
        traced(rates)
        if draw(st.booleans()) and any(rates[:2]) and any(rates[2:])
        else StaticNetwork(latency_s=latency_s, down_bps=rates[:2], up_bps=rates[2:], clients=2)
    )
    population = make_population(
        draw(st.sampled_from([[0.5, 2.0], [1.0, 0.0]])),
        network,
        online([(0, 40), (60, 400)], [(0, 5), (6, 12), (20, 1000)]),
        draw(st.sampled_from(["drop", "pause", "finish", "send_partial"])),
        compute=draw(st.sampled_from(COMPUTE)),
    )
    sizes = st.sampled_from([0.0, 1e6, 2e6])
    return Workload(
        population,
        Failures(**draw(st.sampled_from(FAILURES))),
        draw(sizes),
        draw(sizes),
        send_partial_work=draw(st.booleans()),
        foresight=draw(st.booleans()),
        seed=draw(st.integers(0, 5)),
    )


@settings(max_examples=120, deadline=None)
@given(
    workload=workloads(),
    client=st.integers(0, 1),
    sequence=st.integers(0, 3),
    start_s=st.one_of(st.integers(0, 4), st.integers(20, 39), st.integers(60, 399)),
    steps=st.integers(1, 30),
    deadline_s=st.one_of(st.none(), st.integers(1, 40)),
)
def test_an_undisturbed_dispatch_is_the_definition(
    workload: Workload,
    client: int,
    sequence: int,
    start_s: int,
    steps: int,
    deadline_s: int | None,
) -> None:
    start_ns = start_s * S
    deadline_ns = None if deadline_s is None else start_ns + deadline_s * S
    until_ns = workload.population.availability.online_until(client, start_ns)
    dispatch = handed_out(client, start_ns, steps, sequence)
    plan = undisturbed(workload, dispatch, until_ns) if workload.plain else None
    defined = at_once(DispatchProcess(workload, dispatch, deadline_ns, until_ns))
    assert isinstance(defined, Plan)
    assert plan in (None, defined)


def simple(policy: str, down_bps: float = 8e6, latency_s: float = 0.25) -> Workload:
    population = make_population(
        [0.5, 2.0],
        StaticNetwork(latency_s=latency_s, down_bps=down_bps, up_bps=8e6, clients=2),
        online([(0, 40), (60, 400)], [(0, 20), (30, 1000)]),
        policy,
    )
    return Workload(population, Failures(), 1e6, 2e6, send_partial_work=False, seed=3)


@pytest.mark.parametrize("policy", ["drop", "pause", "finish", "send_partial"])
def test_an_undisturbed_dispatch_by_hand(policy: str) -> None:
    """1 MB at 8 Mbit/s takes 1 s and 0.25 s of latency; 4 steps of 2 s; 2 MB take 2.25 s."""
    by_hand = (
        *(round(41.5 * S), Ending.ARRIVED, round(31.25 * S), round(39.25 * S), 4, 1e6, 2e6),
        *(round(1.25 * S), 8 * S, round(2.25 * S)),
    )
    workload, dispatch = simple(policy), handed_out(1, 30 * S, 4)
    assert workload.plain
    assert undisturbed(workload, dispatch, 1000 * S) == by_hand
    assert undisturbed(workload, dispatch, by_hand[0] - 1) is None
    assert at_once(DispatchProcess(workload, dispatch, None, 1000 * S)) == by_hand


def test_a_download_without_end() -> None:
    workload, dispatch = simple("pause", down_bps=0.0), handed_out(0, 60 * S, 4)
    assert undisturbed(workload, dispatch, NEVER) is None
    assert at_once(DispatchProcess(workload, dispatch, None, 400 * S)).end_ns == NEVER
    # Nothing of it had come when the run ended, a minute later.
    plan = at_once(DispatchProcess(workload, dispatch, None, 400 * S, stop_ns=120 * S))
    assert plan == (120 * S, Ending.STOPPED, -1, -1, 0, 0.0, 0.0, 60 * S, 0, 0)


SCRIPT = {"name": "scripted", "rounds": [[0, 1]]}


def test_bytes_occupy_shared_links_after_the_latency() -> None:
    """1 MB each through 8 Mbit/s: at once from 2 s on, and done at 4 s.

    A client that leaves at 2.5 s has a quarter of its download.
    """
    world = {"step_s": [1, 1], "selection": SCRIPT, "rounds": 1, "shared": True}
    book = simulate(latency_s=2.0, server_down_bps=8e6, **world)
    assert [book.row(i)["downloaded"] for i in range(2)] == [4.0, 4.0]
    leaves = online([(0.0, 2.5)], [(0.0, 1e6)])
    book = simulate(latency_s=2.0, server_down_bps=8e6, availability=leaves, **world)
    assert book.row(0)["bytes_down"] == 250_000
    # The other one has 0.25 MB by then too, and the whole link for the rest.
    assert book.row(1)["downloaded"] == 3.25


@settings(max_examples=16)
@given(
    data=st.data(),
    policy=st.sampled_from(["drop", "pause", "finish", "send_partial"]),
    deadline=st.sampled_from([None, 7, 25]),
    partial=st.sampled_from(["drop", "send"]),
    stragglers=st.sampled_from(["run", "cut"]),
    foresight=st.booleans(),
    loss=st.sampled_from([0.0, 0.4]),
    variation=st.sampled_from(
        [
            {},
            {"step_noise": {"sd": 0.3}, "jitter": {"cv": 0.2}},
            {"perturbations": [{"at": 3, "until": 9.5, "factor": 2.5}, {"at": 5, "factor": 0.5}]},
            {"stragglers": {"probability": 0.5}, "drift": {"amplitude": 0.5, "period": 60}},
        ]
    ),
)
def test_with_room_for_everybody_shared_links_are_static_ones(
    data, policy, deadline, partial, stragglers, foresight, loss, variation
) -> None:
    """A dispatch's life in closed form and with events gives the same rows."""
    clients = data.draw(st.integers(1, 4))
    tenth = st.integers(1, 400).map(lambda n: n / 10)
    gaps = [data.draw(st.lists(tenth, min_size=0, max_size=6)) for _ in range(clients)]
    intervals = []
    for lengths in gaps:
        edges = np.concatenate([[0.0], np.cumsum(lengths)])
        ends = [*edges[1:], 10_000.0]
        intervals.append([(a, b) for a, b in list(zip(edges, ends, strict=True))[::2]])
    world = {
        "step_s": data.draw(
            st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.0]), min_size=clients, max_size=clients)
        ),
        "availability": online(*intervals),
        "selection": {"name": "scripted", "rounds": [list(range(clients))]},
        "schedule": {"name": "sync", "deadline": deadline, "stragglers": stragglers, "pause": 0.5},
        "on_disconnect": policy,
        "partial_work": partial,
        "failures": {"upload_loss": loss, "upload_retries": 1},
        # With a latency, a transfer that is interrupted has moved less on shared links.
        "latency_s": 0.0,
        "compute": variation,
        "until_s": 300.0,
        "foresight": foresight,
    }
    static, shared = simulate(**world), simulate(**world, shared=True)
    order = lambda book: sorted(book.rows, key=lambda row: row["dispatch_id"])  # noqa: E731
    assert len(static.rows) == len(shared.rows)
    for one, other in zip(order(static), order(shared), strict=True):
        assert one == pytest.approx(other, nan_ok=True, abs=2e-9)
    assert static.aggregates == shared.aggregates
