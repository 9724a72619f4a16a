"""Logs of real deployments, by a grid whose nodes answer after known times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.error import Error
from flwr.serverapp import Grid

from fedsim.calibration import calibrate
from fedsim.calibration.log import read_log
from fedsim.flower import internals, logged, logging_grid
from fedsim.scenario.loading import load_scenario_dict
from tests.calibration.worlds import few_simulations
from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import ask, devices


class Clock:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    perf_counter = time

    def sleep(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)


class Nodes:
    """Node n answers after n seconds, of which it works for half of them; node 9 with an error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, tuple[float, Message]] = {}

    def push_messages(self, messages: Any) -> Any:
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(len(self._due))
            message.metadata.__dict__["_src_node_id"] = 1
            if node == 9:
                reply = Message(Error(3, "gone"), reply_to=message)
            else:
                reply = Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)
                reply.content["fedsim.timing"] = ConfigRecord({"seconds": node / 2})
            ids.append(message.metadata.message_id)
            self._due[ids[-1]] = (self._clock.now + node, reply)
        return ids

    def pull_messages(self, message_ids: Any) -> Any:
        here = [each for each in message_ids if each in self._due]
        due = [each for each in here if self._due[each][0] <= self._clock.now]
        self._due |= {each: (float("inf"), self._due[each][1]) for each in due}
        return [self._due[each][1] for each in due]

    def get_node_ids(self) -> Any:
        return [1, 2, 9]


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    with internals.identity(1, 1):
        yield


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six rounds with a timeout of 4 s, in which node 5 is late; the replies of the last but one round come."""
    clock = Clock()
    monkeypatch.setattr(logging_grid, "time", clock)
    grid = logged(Nodes(clock), tmp_path / "log.csv")
    for _ in range(6):
        replies = grid.send_and_receive([ask(node) for node in (1, 2, 5, 9)], timeout=4)
        assert [reply.metadata.src_node_id for reply in replies] == [1, 2]
        assert all("fedsim.timing" not in reply.content for reply in replies)
        clock.sleep(2)
    return tmp_path / "log.csv"


def test_every_reply_is_a_row(log: Path) -> None:
    table = pd.read_csv(log)
    assert list(table.columns) == list(logging_grid.COLUMNS)
    first = table[table["round"] == 0].set_index("client")
    assert first["outcome"].to_dict() == {
        1: "aggregated",
        2: "aggregated",
        5: "late",
        9: "dropped",
    }
    spans = first["end"] - first["start"]
    assert spans[[1, 2]].tolist() == pytest.approx([1, 2], abs=0.11)
    assert spans[5] == pytest.approx(6, abs=0.11), "seen when the next round begins"
    work = first["computed"] - first["downloaded"]
    assert work.dropna().to_dict() == pytest.approx({1: 0.5, 2: 1, 5: 2.5})
    assert (table["bytes_down"] > 100).all()
    rows = read_log(log).dispatches
    assert (rows.loc[rows["client"] == "9", "outcome"] == "dropped").all()


@few_simulations()
def test_the_log_is_calibrated(log: Path, tmp_path: Path) -> None:
    estimates = calibrate(log, tmp_path / "bundle").estimates
    assert estimates.clients == ("1", "2", "5", "9")
    assert estimates.step_s.mean == pytest.approx([0.5, 1, 2.5, 1]), (
        "the median of those who answered"
    )
    assert estimates.knows_links
    scenario = {"name": "app", "task": {"name": "flower", "clients": 4}, **_devices()}
    result = calibrate(log, tmp_path / "known", load_scenario_dict(scenario, tmp_path))
    assert any("6 s, which counts as the ServerApp's timeout" in flag for flag in result.flags)
    assert result.scenario is not None
    assert result.distributions["dispatch to arrival (s)"][1]


def _devices() -> dict[str, Any]:
    section = devices()
    section["compute"].pop("unit")
    return {"devices": section, "stop": {"simulated_time": "1h"}}


def test_a_run_of_fedsim_has_a_log_of_its_own(run_app: Any, tmp_path: Path) -> None:
    def main(grid: Grid, context: Any) -> None:
        assert logged(grid, tmp_path / "log.csv") is grid

    run_app(own_loop(main), apps.query_client(), {"devices": devices()})
    assert not (tmp_path / "log.csv").exists()
