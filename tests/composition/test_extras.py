"""Trackers never change a result, whatever they do."""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedsim
from fedsim.composition.extras import Stopwatch
from fedsim.errors import UserError
from fedsim.tracking import Moment, TrackedRun
from tests.tracking.listening import SCENARIO, Listening, run


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Listening.forget()


def test_trackers_never_change_a_result(tmp_path: Path) -> None:
    without = fedsim.run(SCENARIO, tmp_path / "without")
    with_ = run(tmp_path, Listening)
    assert without.folder.model.read_bytes() == with_.folder.model.read_bytes()
    assert without.metrics.equals(with_.metrics)


class Failing(Listening):
    """A tracker whose server is gone after the first evaluation."""

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        super().log(metrics, moment)
        raise ConnectionError("no route to host")


def test_a_tracker_that_fails_is_reported_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fedsim"):
        finished = run(tmp_path, Failing)
    assert finished.status == "complete"
    assert len(Listening.heard) == 1
    [record] = [one for one in caplog.records if "tracker" in one.message]
    assert "no route to host" in record.message


class Impossible(Listening):
    """A tracker that cannot be started."""

    def __init__(self, params: Any, run: TrackedRun) -> None:
        raise PermissionError("not logged in")


def test_a_tracker_that_cannot_start_refuses_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be started: PermissionError: not logged in"):
        run(tmp_path, Impossible)
    assert not (tmp_path / "run").exists()


def test_a_stopwatch_counts_the_block_that_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is written while the learning plane is at work, whose time it records."""
    now_s = 10.0
    clock = SimpleNamespace(perf_counter=lambda: now_s)
    monkeypatch.setattr("fedsim.composition.extras.time", clock)
    watch = Stopwatch()
    with watch:
        now_s = 13.0
        assert watch.seconds == 3
    now_s = 20.0
    assert watch.seconds == 3
    with watch:
        now_s = 21.0
        assert watch.seconds == 4
