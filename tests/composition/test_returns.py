"""Parts of users that return something wrong: one error that names the part, what it returned and what to return."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from tests.composition.worlds import digits

PARTS = """
import numpy as np
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import Demands, Schedule
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.partition import Assignment, CountedParameters, Partitioner

x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2

class Parts(Partitioner):
    class Params(CountedParameters):
        value: str
    def assign(self, dataset, rng, folder):
        count = len(dataset.train_y)
        return {
            "outside": Assignment(np.full(count, 99), 2),
            "few": Assignment(np.zeros(5, np.int64), 2),
        }[self.params.value]

class Data(DatasetComponent):
    class Params(Parameters):
        value: str
    def load(self, folder=None):
        return {
            "lists": lambda: Dataset("own", x.tolist(), y.tolist(), x, y, classes=2),
            "labels": lambda: Dataset("own", x, y.astype(float), x, y, classes=2),
        }[self.params.value]()

class Waits(Schedule):
    class Params(Parameters):
        deadline: float = 3.0
        rush: float = 1.0
    def run(self):
        for client in self.selection.cohort():
            self.server.dispatch(client)
        while True:
            self.server.aggregate([(yield)], closes_round=True)

class Hurries(Waits):
    @classmethod
    def demands(cls, params):
        return Demands(limit_s=0.001)

class Many(Waits):
    @classmethod
    def demands(cls, params):
        return Demands(updates=50)
"""
CASES: list[tuple[str, Any, str]] = [
    ("partition", {"name": "own.py:Parts", "clients": 2, "value": "outside"}, "clients 0 to 1"),
    ("partition", {"name": "own.py:Parts", "clients": 2, "value": "few"}, r"shape \(5,\)"),
    ("dataset", {"name": "own.py:Data", "value": "lists"}, "train_x is .* not a NumPy array"),
    ("dataset", {"name": "own.py:Data", "value": "labels"}, "train_y is .* of type int64"),
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of these parts, in the working directory."""
    (tmp_path / "own.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("key", "part", "message"), CASES)
@pytest.mark.usefixtures("own")
def test_a_wrong_return_value_is_the_users(
    key: str, part: dict[str, Any], message: str, tmp_path: Path
) -> None:
    world = digits(stop={"rounds": 1})
    world["task"][key] = part
    with pytest.raises(UserError, match=message):
        fedsim.run(world, tmp_path / "run")


@pytest.mark.usefixtures("own")
def test_demands_of_a_schedule_that_cannot_be_met(tmp_path: Path) -> None:
    message = r"server\.schedule: a version needs 50 .*\n.*raise stop\.dispatches to at least 50"
    world = digits(stop={"dispatches": 10})
    world["server"].update(schedule="own.py:Many", failure_detection="never")
    with pytest.raises(UserError, match=message):
        fedsim.run(world, tmp_path / "run")


@pytest.mark.usefixtures("own")
def test_a_limit_that_no_parameter_sets_is_that_of_the_schedule(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = digits(stop={"dispatches": 10})
    world["server"]["schedule"] = "own.py:Hurries"
    fedsim.run(world, tmp_path / "run")
    assert "server.schedule: at nominal speed, 12 of 12 clients cannot finish" in caplog.text
    assert "let the schedule wait at least " in caplog.text
