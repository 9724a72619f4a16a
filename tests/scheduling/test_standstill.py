"""Runs whose time stands still."""

from __future__ import annotations

import pytest

from fedsim.errors import UserError
from fedsim.scheduling.standstill import Standstill
from tests.scheduling.stories import run


def test_a_world_without_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standstill, "LIMIT", 1000)
    with pytest.raises(UserError, match="took no simulated time"):
        run([0.0, 0.0], {"name": "async"}, until_s=10)
    assert len(run([0.0, 0.0], {"name": "async"}, rounds=500).aggregates) == 500


def test_only_steps_of_one_instant_count_and_the_allowance_is_added() -> None:
    class Small(Standstill):
        LIMIT = 3

    guard = Small("rounds", "a pause, ", allowance=1)
    for now_ns in (0, 0, 0, 0, 7, 7, 7, 7):
        guard.count(now_ns)
    with pytest.raises(UserError, match="5 rounds in a row took no simulated time"):
        guard.count(7)
