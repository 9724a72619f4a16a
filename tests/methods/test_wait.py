"""Waiting for all clients."""

from pathlib import Path

import pytest

from tests.methods.driver import close
from tests.methods.simulated import simulate, world
from tests.simulation.harness import online_bundle


def test_waiting_for_all(tmp_path: Path) -> None:
    """Client 0 is online from 0 to 100 s, client 1 from 20 s; a step takes 3 s. Each works once per window."""
    online_bundle([(0.0, 100.0)], [(20.0, 22.0), (30.0, 100.0)], horizon_s=1000.0).write(
        tmp_path / "trace"
    )
    scenario = world(
        [1.0, 3.0],
        method="wait",
        stop={"rounds": 3},
        devices={
            "trace": str(tmp_path / "trace"),
            "compute": {"name": "values", "step": [3.0, 3.0]},
        },
    )
    ran = simulate(scenario)
    close(ran.x, [0, 0.2, 0.38, 0.542])
    rows = ran.dispatches
    # Client 1 is offline until 20 s, drops out at 22 s and is back at 30 s; then both are there.
    assert [round(aggregate.time_s, 3) for aggregate in ran.book.aggregates] == [33, 36, 39]
    assert rows["client"].tolist()[:3] == [0, 1, 1]
    assert rows["dispatched"].tolist()[:3] == pytest.approx([0, 20, 30])
    assert (rows["version"] == [0, 0, 0, 1, 1, 2, 2]).all()
