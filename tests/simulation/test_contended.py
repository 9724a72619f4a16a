"""Dispatches on shared links: with capacity for all they behave as on static links; without, they share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.harness import online, simulate

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


@settings(max_examples=35)
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
