"""Parts of users that return something wrong: one error that names the part, what it returned and what to return."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from tests.composition.worlds import digits

PARTS = '''
import numpy as np
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import Demands, Schedule
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.partition import Assignment, CountedParameters, Partitioner

x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2

class Parts(Partitioner):
    """Owners."""
    class Params(CountedParameters):
        value: str
    def assign(self, dataset, rng, folder):
        """The owners."""
        count = len(dataset.train_y)
        return {
            "outside": Assignment(np.full(count, 99), 2),
            "few": Assignment(np.zeros(5, np.int64), 2),
        }[self.params.value]

class Data(DatasetComponent):
    """Samples."""
    class Params(Parameters):
        value: str
    def load(self, folder=None):
        """The samples."""
        return {
            "lists": lambda: Dataset("own", x.tolist(), y.tolist(), x, y, classes=2),
            "labels": lambda: Dataset("own", x, y.astype(float), x, y, classes=2),
        }[self.params.value]()

class Waits(Schedule):
    """Rounds of all clients."""
    class Params(Parameters):
        deadline: float = 3.0
        rush: float = 1.0
    def run(self):
        """One version per update of the first round."""
        for client in self.selection.cohort():
            self.server.dispatch(client)
        while True:
            self.server.aggregate([(yield)], closes_round=True)

class Hurries(Waits):
    """Waits for a millisecond, which no parameter says."""
    @classmethod
    def demands(cls, params):
        """A limit."""
        return Demands(limit_s=0.001)

class Many(Waits):
    """Needs many updates, which no parameter says."""
    @classmethod
    def demands(cls, params):
        """A minimum."""
        return Demands(updates=50)
'''
CASES: list[tuple[str, Any, str]] = [
    (
        "task.partition",
        {"name": "own.py:Parts", "clients": 2, "value": "outside"},
        "clients 0 to 1",
    ),
    ("task.partition", {"name": "own.py:Parts", "clients": 2, "value": "few"}, r"shape \(5,\)"),
    ("task.dataset", {"name": "own.py:Data", "value": "lists"}, "train_x is .* not a NumPy array"),
    ("task.dataset", {"name": "own.py:Data", "value": "labels"}, "train_y is .* of type int64"),
]


@pytest.mark.parametrize(("key", "part", "message"), CASES)
def test_a_wrong_return_value_is_the_users(
    key: str, part: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    world = digits(stop={"rounds": 1})
    section, name = key.split(".")
    world[section][name] = part
    with pytest.raises(UserError, match=message):
        fedsim.run(world, tmp_path / "run")


def test_demands_of_a_schedule_that_cannot_be_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"server\.schedule: a version needs 50 .*\n.*raise stop\.dispatches to at least 50"
    (tmp_path / "own.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    world = digits(stop={"dispatches": 10})
    world["server"].update(schedule="own.py:Many", failure_detection="never")
    with pytest.raises(UserError, match=message):
        fedsim.run(world, tmp_path / "run")


def test_a_limit_that_no_parameter_sets_is_that_of_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    world = digits(stop={"dispatches": 10})
    world["server"]["schedule"] = "own.py:Hurries"
    fedsim.run(world, tmp_path / "run")
    assert "server.schedule: at nominal speed, 12 of 12 clients cannot finish" in caplog.text
    assert "let the schedule wait at least " in caplog.text
