"""Waiting for all clients: windows, their shortest and longest length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.vocabulary.outcomes import Outcome
from tests.methods.simulated import close, simulate, world
from tests.simulation.harness import online_bundle


def waiting(tmp_path: Path, **schedule: Any) -> dict[str, Any]:
    """Client 0 is there from 0 to 100 s, client 1 from 20 s; a step takes 3 s; the trace is 1000 s long."""
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
    if schedule:
        scenario["server"]["schedule"] = {"name": "window", **schedule}
    return scenario


def test_waiting_for_all(tmp_path: Path) -> None:
    """Each client works once a window, when it first comes online; who drops out is asked again."""
    ran = simulate(waiting(tmp_path))
    close(ran.x, [0, 0.2, 0.38, 0.542])
    rows = ran.dispatches
    # Client 1 is offline until 20 s, drops out at 22 s and is back at 30 s; then both are there.
    assert [round(aggregate.time_s, 3) for aggregate in ran.book.aggregates] == [33, 36, 39]
    assert rows["client"].tolist()[:3] == [0, 1, 1]
    assert rows["dispatched"].tolist()[:3] == pytest.approx([0, 20, 30])
    assert (rows["version"] == [0, 0, 0, 1, 1, 2, 2]).all()


def test_windows_have_a_shortest_length(tmp_path: Path) -> None:
    """One update a cycle of 40 s, made at its end."""
    ran = simulate(waiting(tmp_path, length=40))
    assert [aggregate.time_s for aggregate in ran.book.aggregates] == [40, 80, 120]
    close(ran.x, [0, 0.2, 0.38, 0.542])


def test_windows_have_a_longest_length(tmp_path: Path) -> None:
    """At 31 s client 1 is at work: it is stopped, and whoever has reported counts."""
    ran = simulate(waiting(tmp_path, deadline=31))
    assert [round(aggregate.time_s, 3) for aggregate in ran.book.aggregates] == [31, 34, 37]
    close(ran.x[1], 0.1)
    outcomes = [Outcome(value).label for value in ran.dispatches["outcome"]]
    assert outcomes[:3] == ["aggregated", "dropped", "cut"]
    with pytest.raises(UserError, match="shorter than the shortest"):
        simulate(waiting(tmp_path / "other", deadline=31, length=40))


def test_windows_need_to_end(tmp_path: Path) -> None:
    scenario = waiting(tmp_path)
    scenario["server"]["failure_detection"] = "never"
    with pytest.raises(UserError, match="waits forever"):
        simulate(scenario)


def test_windows_without_any_report_make_no_version(tmp_path: Path) -> None:
    """Nobody is done within 2 s: windows close and open again, and the time comes when the trace ends them."""
    scenario = waiting(tmp_path, deadline=2)
    ran = simulate(scenario)
    assert len(ran.x) == 1
    assert {Outcome(value).label for value in ran.dispatches["outcome"]} == {"cut"}
