"""A short run with trackers, and a tracker that notes what it is sent."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.tracking import Moment, TrackedRun, Tracker

SCENARIO: dict[str, Any] = {
    "name": "tracked",
    "task": {
        "dataset": "digits",
        "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 8},
        "model": "linear",
    },
    "training": {"local_steps": 2},
    "devices": {
        "compute": {"name": "values", "step": "1s"},
        "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
    },
    "stop": {"rounds": 4},
    "evaluation": {"every_rounds": 1},
}


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


class Listening(Tracker):
    """A tracker that keeps what it is sent."""

    heard: list[tuple[Mapping[str, float], Moment]] = []
    ended: list[tuple[str, Mapping[str, Any]]] = []
    runs: list[TrackedRun] = []

    @classmethod
    def forget(cls) -> None:
        for record in (cls.heard, cls.ended, cls.runs):
            record.clear()

    def __init__(self, params: Any, run: TrackedRun) -> None:
        super().__init__(params, run)
        self.runs.append(run)

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        self.heard.append((metrics, moment))

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        self.ended.append((status, summary))


def run(tmp_path: Path, *logging_: Any, **more: Any) -> fedsim.Run:
    return fedsim.run({**SCENARIO, "logging": list(logging_)}, tmp_path / "run", **more)


def resumed(tmp_path: Path, logging_: list[Any]) -> fedsim.Run:
    """A run that is interrupted after some evaluations, and then finished."""

    def interrupt(progress: Any) -> None:
        if progress.version == 3:
            raise KeyboardInterrupt

    scenario = {**SCENARIO, "logging": logging_, "training": {"local_steps": 2, "verify": "eager"}}
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(scenario, tmp_path / "run", on_progress=interrupt)
    return fedsim.resume(tmp_path / "run")
