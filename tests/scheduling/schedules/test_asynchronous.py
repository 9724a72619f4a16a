"""A version of every update."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.vocabulary.outcomes import Outcome
from tests.scheduling.stories import run, versions
from tests.simulation.harness import simulate


def test_every_update_makes_a_version() -> None:
    """Work of 10 s and 25 s; the second client's updates are stale by what the first did meanwhile."""
    book = run([1.0, 2.5], {"name": "async"}, until_s=50)
    assert versions(book) == [
        (10, [0], [0]),
        (20, [0], [0]),
        (25, [1], [2]),
        (30, [0], [1]),
        (40, [0], [0]),
        (50, [1], [2]),
        (50, [0], [1]),
    ]
    assert [row["dispatched"] for row in book.rows if row["client"] == 1] == [0, 25, 50]


def test_updates_of_one_instant_are_handled_in_order_of_dispatching() -> None:
    """Both arrive at 10 s; the second client then starts from version 2, the first from version 1."""
    book = run([1.0, 1.0], {"name": "async"}, until_s=10)
    assert versions(book) == [(10, [0], [0]), (10, [1], [1])]
    again = {row["client"]: row["version"] for row in book.rows if row["dispatched"] == 10}
    assert again == {0: 1, 1: 2}


@settings(max_examples=40, deadline=None)
@given(
    step_s=st.lists(st.floats(0.01, 50.0), min_size=2, max_size=8),
    places=st.integers(1, 8),
    arrivals=st.integers(1, 60),
    rate=st.floats(1e5, 1e9),
    latency=st.floats(0.0, 2.0),
    cv=st.sampled_from([0.0, 0.8]),
    shared=st.booleans(),
)
def test_the_mean_delay_is_concurrency_minus_one(
    step_s: list[float],
    places: int,
    arrivals: int,
    rate: float,
    latency: float,
    cv: float,
    shared: bool,
) -> None:
    """With n updates always under way, each version ages the n - 1 others, whatever the speeds and links.

    So the delays of the updates that have arrived, and those of the n under way, add up to (n - 1) per version, and the
    mean delay is n - 1 (the discrete Little's law of arXiv:2502.08206).
    """
    places = min(places, len(step_s))
    book = simulate(
        step_s=step_s,
        schedule={"name": "async", "concurrency": places},
        selection={"name": "uniform"},
        arrivals=arrivals,
        down_bps=rate,
        up_bps=rate,
        latency_s=latency,
        compute={"jitter": {"cv": cv}},
        shared=shared,
        server_up_bps=2 * rate,
    )
    arrived = [row["staleness"] for row in book.rows if row["outcome"] == Outcome.AGGREGATED]
    ages = [arrivals - row["version"] for row in book.rows if row["outcome"] != Outcome.AGGREGATED]
    assert (len(arrived), len(ages)) == (arrivals, places)
    assert sum(arrived) + sum(ages) == (places - 1) * arrivals
