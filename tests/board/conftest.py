"""Rows of a board made by hand, and a small suite."""

import math
from pathlib import Path

import pandas as pd
import pytest

from fedsim.board.running import FIGURES
from fedsim.board.suite import Entry, Question, Suite, suite

TIMES = {
    "FedAvg": [100.0, 120.0, 80.0],
    "FedBuff": [50.0, 66.0, 36.0],
    "FedCompass": [49.0, 70.0, 37.0],
    "FedAsync": [90.0, math.nan, math.nan],
    "ACE": [math.nan] * 3,
}
VERSIONS = {"FedAvg": 10, "FedBuff": 30, "FedCompass": 20, "FedAsync": 10, "ACE": math.nan}


@pytest.fixture(scope="module")
def question() -> Question:
    silos = suite().scenarios["silos"]
    return Question("silos", silos.file, ("silos",), 60.0, 1e6, {"slower": {}})


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    def row(entry: str, kind: str, seed: int, time_s: float) -> dict[str, object]:
        return {
            **dict.fromkeys(FIGURES, 1.0),
            "scenario": "silos",
            "entry": entry,
            "kind": kind,
            "setting": 1,
            "seed": seed,
            "digest": "",
            "code": "",
            "error": "",
            "time_s": time_s,
            "versions": VERSIONS[entry],
        }

    measured = [row(e, "measured", s, t) for e, times in TIMES.items() for s, t in enumerate(times)]
    slower = [row(e, "slower", s, 3 * t) for e, times in TIMES.items() for s, t in enumerate(times)]
    broken = {**row("FedBuff", "tuning", 100, math.nan), "entry": "Broken", "error": "cannot"}
    return pd.DataFrame([*measured, *slower, broken])


SCENARIO = """# Two clients and their mean.
name: tiny
task: {name: quadratic, centers: [[1.0], [3.0]], initial: 0}
training: {optimizer: {name: sgd, lr: 0.1}, local_steps: 1}
devices:
  compute: {name: values, step: 1s}
  network: {name: static, latency: 0s, down: 1Gbps, up: 1Gbps}
server: {method: {name: fedavg}}
stop: {simulated_time: 30s, target: {gradient_norm: 0.2}}
evaluation: {every: 1s}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Suite:
    file = tmp_path / "tiny.yaml"
    file.write_text(SCENARIO)
    knob = ("server.method.server_lr", (0.5, 1.0, 1.5))
    entries = {
        "FedAvg": Entry("FedAvg", ("all",), {"server.method": {"name": "fedavg"}}, *knob),
        "Strange": Entry("Strange", ("all",), {"server.method": {"name": "fedper"}}, *knob),
    }
    question = Question(
        "tiny", file, ("all",), 10.0, 100.0, {"slower": {"devices.compute.step": 2}}
    )
    return Suite("tiny-1", [0.3, 1, 3], [100, 101], [0, 1], entries, {"tiny": question})
