"""When the model is evaluated."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.engine import Engine
from fedsim.simulation.evaluations import Evaluations
from fedsim.vocabulary.timeline import Evaluate

S = 1_000_000_000


class Plane:
    """Keeps the evaluations asked for; the metric is the version."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float, int]] = []

    def submit(self, instruction: Any) -> None:
        assert isinstance(instruction, Evaluate)
        self.asked.append((instruction.version, instruction.time_s, instruction.round))

    def evaluate(self, instruction: Evaluate) -> Mapping[str, float]:
        return {"version": instruction.version}


def evaluated(
    versions_at_s: list[float], until_s: float | None, **times: Any
) -> list[tuple[int, float, int]]:
    """The evaluations of a run whose versions, of 10 local steps and a round each, are made at these seconds."""
    engine, plane = Engine(), Plane()
    evaluations = Evaluations(**times)
    server: Any = SimpleNamespace(version=0, round=0)

    def make(version: int) -> None:
        dispatch = Dispatch(version, 0, version, version, version, 10, 0, 0)
        dispatch.steps_done = 10
        server.version = server.round = version
        evaluations.on_version([dispatch])

    for number, time_s in enumerate(versions_at_s, start=1):
        engine.call_at(round(time_s * S), lambda number=number: make(number))  # type: ignore[misc]
    evaluations.start(engine, server, plane)  # type: ignore[arg-type]
    engine.run(None if until_s is None else round(until_s * S))
    evaluations.finish()
    return plane.asked


def test_by_time_after_the_events_of_the_instant() -> None:
    """Due at 2, 4, 6 s; a version made at 4 s is the one measured at 4 s."""
    asked = evaluated([1, 4, 4.5], 7, every_ns=2 * S, at_start=True)
    assert asked == [(0, 0, 0), (1, 2, 1), (2, 4, 2), (3, 6, 3)]


def test_by_time_until_nothing_can_happen_any_more() -> None:
    assert evaluated([1, 4.5], None, every_ns=2 * S) == [(1, 2, 1), (1, 4, 1), (2, 6, 2)]


def test_by_version_and_at_the_end() -> None:
    assert evaluated([1, 2, 3, 4, 5], 9, every_versions=2) == [(2, 2, 2), (4, 4, 4), (5, 9, 5)]
    assert evaluated([1, 2], 9, every_versions=2) == [(2, 2, 2)]


def test_by_aggregated_local_steps() -> None:
    """Versions of 10 local steps: 21 to 30 are reached with every third version."""
    for every in (21, 30):
        assert evaluated([1, 2, 3, 4, 5, 6], 9, every_steps=every) == [(3, 3, 3), (6, 6, 6)]


def test_the_run_ends_at_its_target() -> None:
    asked = evaluated(
        [1, 2, 3, 4], 9, every_versions=1, reached=lambda metrics: metrics["version"] >= 2
    )
    assert asked == [(1, 1, 1), (2, 2, 2)]


def test_endless_evaluations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.simulation.evaluations.MOST_EVALUATIONS", 3)
    with pytest.raises(UserError, match=r"2 s between evaluations reached the limit of 3 per run"):
        evaluated([20], None, every_ns=2 * S)
