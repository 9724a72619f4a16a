"""The aggregation of FedCompass; its worked traces are in test_fedcompass_oracles.py."""

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.methods.fakes import Written, make
from tests.methods.test_asynchronous import PLAIN, quadratics
from tests.scheduling.worlds import play


def test_timing_does_not_depend_on_the_aggregation() -> None:
    """I11: FedCompass, +M, +N and any staleness weight live through the same events."""
    variants: list[dict[str, Any]] = [
        {},
        {"momentum": 0.9},
        {"normalized": True},
        {"alpha": 0.3, "staleness": {"name": "hinge"}},
        {"staleness_at": "aggregation"},
    ]
    worlds = [
        quadratics(
            [1.0, 2.3, 5.9],
            {"name": "fedcompass", **variant},
            schedule={"name": "compass", "min_steps": 2, "max_steps": 10},
            until_s=300,
            compute={"jitter": {"name": "normal", "cv": 0.2}},
        )
        for variant in variants
    ]
    for world in worlds[1:]:
        assert world.assignments == worlds[0].assignments
        assert world.book.aggregates == worlds[0].book.aggregates
        assert world.w != worlds[0].w
    assert any(
        item.group not in (0, aggregate.attributes["group"])
        for aggregate in worlds[0].book.aggregates
        for item in aggregate.contributions
    )


def test_first_updates_bypass_momentum_and_normalization() -> None:
    state = {
        "model": torch.tensor([1.0], dtype=torch.float64),
        "momentum": torch.tensor([5.0], dtype=torch.float64),
    }
    method = make({"name": "fedcompass", **PLAIN, "momentum": 0.9, "normalized": True}, [1, 3])
    updates = Written({"delta": [[8.0]]}, samples=[3], steps=[7], attributes={"group": 0.0})
    after = method.aggregate(state, updates)
    assert after["model"].item() == 7.0
    assert after["momentum"] is state["momentum"]


SPEEDS = st.lists(st.integers(100, 10_000).map(lambda ms: ms / 1000), min_size=1, max_size=6)


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(step_s=SPEEDS, seed=st.integers(0, 5), factor=st.sampled_from([1.0, 1.2]))
def test_every_update_is_applied_once(step_s: list[float], seed: int, factor: float) -> None:
    """I7: with alpha = 1 and without staleness the model has moved by all updates but those that still wait."""
    world = play(
        step_s,
        method={"name": "fedcompass", "alpha": 1.0, "staleness": {"name": "constant"}},
        schedule={"name": "compass", "min_steps": 5, "max_steps": 25, "latest_factor": factor},
        compute={"jitter": {"name": "normal", "cv": 0.2}},
        seed=seed,
        until_s=150,
    )
    waiting = received = 0.0
    outcomes = world.book.outcomes()
    for row in world.book.rows:
        if row["arrived"] == row["arrived"]:
            change = row["steps_done"] / len(step_s)
            received += change
            waiting += change * (outcomes[row["dispatch_id"]] == "unfinished")
    assert -world.w[-1] + waiting == pytest.approx(received, rel=1e-10)
