"""The programs of the page about logs write what ``fedsim calibrate --check`` accepts."""

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fedsim.calibration.log import FORMAT, json_schema, read_log
from tests.docs.pages import blocks, exit_code, working_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "logs.md"
FLOWER, FLARE, APPFL = (block.text for block in blocks(PAGE) if block.language == "python")


def _defined(code: str, monkeypatch: pytest.MonkeyPatch, **modules: type) -> dict[str, Any]:
    """What a program defines, with stand-ins for the modules of a framework by the class that they have."""
    for path, base in modules.items():
        name = path.replace("__", ".")
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**{base.__name__: base}))
        for parent in (name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)):
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log that is in order by the command and by the schema."""
    assert exit_code(f"fedsim calibrate {path} --check") == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        jsonschema.validate(row, json_schema())
    assert len(read_log(path).dispatches) == len(rows)
    return rows


def test_the_page_defines_the_columns_of_the_format() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(column.spellings[0], column.meaning) for column in FORMAT.values()]


def test_flower_writes_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    from flwr.serverapp.strategy import FedAvg

    from fedsim.flower.grid import node_ids
    from tests.flower import apps
    from tests.flower.test_running import flowers_own_engine

    logged_grid = _defined(FLOWER, monkeypatch)["LoggedGrid"]

    def make(**settings: Any) -> Any:
        strategy = FedAvg(**settings)
        start = strategy.start
        path = tmp_path / "log.jsonl"
        strategy.start = lambda grid, **options: start(logged_grid(grid, path), **options)
        return strategy

    server = apps.strategy_server(make, min_train_nodes=3, min_available_nodes=3)
    nodes = node_ids(3, 0)
    flowers_own_engine(server, apps.torch_client(), nodes)
    rows = _rows(tmp_path / "log.jsonl")
    assert sorted((row["round"], row["client"]) for row in rows) == sorted(
        (number, node) for number in (1, 2) for node in nodes
    )


class FedAvg:
    """``send_model`` as in NVIDIA FLARE 2.9, whose clients reply at once."""

    def send_model(
        self,
        task_name: str = "train",
        data: Any = None,
        targets: list[str] | None = None,
        min_responses: int | None = None,
        timeout: int = 0,
        callback: Any = None,
    ) -> None:
        for name in targets or ():
            meta = {"client_name": name, "NUM_STEPS_CURRENT_ROUND": 5}
            callback(types.SimpleNamespace(meta=meta))


def test_flare_writes_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _defined(FLARE, monkeypatch, nvflare__app_common__workflows__fedavg=FedAvg)
    received: list[str] = []
    with working_in(tmp_path):
        for version in range(2):
            names["LoggedFedAvg"]().send_model(
                task_name="train",
                targets=["site-1", "site-2"],
                data=types.SimpleNamespace(current_round=version),
                callback=lambda result: received.append(result.meta["client_name"]),
            )
    rows = _rows(tmp_path / "log.jsonl")
    assert [(row["client"], row["round"], row["steps"]) for row in rows] == [
        (name, version, 5) for version in range(2) for name in ("site-1", "site-2")
    ]
    assert received == ["site-1", "site-2"] * 2


class ServerAgent:
    """The methods of APPFL's server agent that its gRPC server calls; every update makes a version."""

    def __init__(self) -> None:
        self._versions = 0
        self.scheduler = types.SimpleNamespace(get_num_global_epochs=lambda: self._versions)

    def get_parameters(self, blocking: bool = False, **kwargs: Any) -> str:
        return "model"

    def global_update(
        self, client_id: str, local_model: bytes, blocking: bool = False, **kwargs: Any
    ) -> str:
        self._versions += 1
        return "model"


def test_appfl_writes_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = _defined(APPFL, monkeypatch, appfl__agent=ServerAgent)["LoggedServerAgent"]()
    with working_in(tmp_path):
        for _ in range(2):
            assert agent.get_parameters(blocking=True, init_model=True) == "model"
        for name in ("a", "b", "a"):
            assert agent.global_update(name, b"", blocking=True) == "model"
    rows = _rows(tmp_path / "log.jsonl")
    assert [(row["client"], row["round"]) for row in rows] == [("a", 0), ("b", 0), ("a", 1)]
    assert rows[2]["start"] >= rows[0]["end"]
