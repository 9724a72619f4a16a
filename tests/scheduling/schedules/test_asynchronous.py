"""A version of every update."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.vocabulary.outcomes import Outcome
from tests.simulation.harness import simulate


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
