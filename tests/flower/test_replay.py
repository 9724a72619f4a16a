"""The beginning of an app, run twice: the first difference is named, and which of the two apps made it."""

import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedsim.flower import mark_version, replay
from fedsim.flower.replay import first_difference
from tests.cli.invoking import assert_refused, invoke
from tests.flower import apps
from tests.flower.apps import own_loop
from tests.flower.worlds import RunApp, devices

PROJECT = """\
[project]
name = "drawing"
version = "1.0"
[tool.flwr.app]
publisher = "x"
[tool.flwr.app.components]
serverapp = "drawing:server"
clientapp = "drawing:client"
[tool.flwr.app.config]
nodes = 3
"""
APP = """\
import random
import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
server, client = ServerApp(), ClientApp()

@client.query()
def query(message, context):
    drawn = MetricRecord({"drawn": DRAW})
    return Message(RecordDict({"drawn": drawn}), reply_to=message)

@server.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())[: context.run_config["nodes"]]
    list(grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes]))
"""


class InThisProcess:
    """Stands in for a process that runs the beginning of an app, which takes ten seconds to import Flower."""

    returncode = 0

    def __init__(self, command: list[Any], **_: Any) -> None:
        replay._main(*map(str, command[3:]))

    def communicate(self) -> tuple[str]:
        return ("",)


def check(folder: Path, draw: str) -> Result:
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "drawing.py").write_text(APP.replace("DRAW", draw))
    arguments = ["scenario", "check", "--replay", folder, "-s", "task.clients=3"]
    return invoke(*arguments, "--run-config", "nodes=2")


def test_a_generator_that_the_system_seeds_is_found(tmp_path: Path) -> None:
    message = "the ClientApp gives message 0 (query, partition 0"
    assert_refused(
        check(tmp_path, "np.random.default_rng().random()"), message, "default_rng(seed)"
    )


def test_the_global_generators_are_seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", InThisProcess)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = check(tmp_path, "random.random() + np.random.random()")
    assert "replay: 2 messages and 0 model versions are the same in two runs" in result.output


def a_config(grid: Grid, numbers: Iterator[int]) -> None:
    content = RecordDict({"config": ConfigRecord({"number": next(numbers)})})
    list(grid.send_and_receive([Message(content, next(iter(grid.get_node_ids())), "query")]))


def query(grid: Grid, nodes: slice) -> None:
    asked = list(grid.get_node_ids())[nodes]
    list(grid.send_and_receive([Message(RecordDict(), node, "query") for node in asked]))


def more_messages(grid: Grid, numbers: Iterator[int]) -> None:
    query(grid, slice(next(numbers)))


def other_nodes(grid: Grid, numbers: Iterator[int]) -> None:
    query(grid, slice(number := next(numbers), number + 1))


def metrics(grid: Grid, numbers: Iterator[int]) -> None:
    mark_version([], metrics={"accuracy": next(numbers) / 10})


@pytest.mark.parametrize(
    ("act", "difference"),
    [
        (a_config, "the ServerApp gives message 0 (query, partition 0) another content"),
        (more_messages, "the ServerApp sends 2 messages instead of 1"),
        (other_nodes, "the ServerApp sends message 0 (query, partition 1) to another node"),
        (metrics, "the ServerApp reports other metrics"),
    ],
)
def test_differences_that_the_serverapp_makes(
    run_app: RunApp, act: Callable[..., None], difference: str
) -> None:
    numbers = count(1)

    def main(grid: Grid, context: Context) -> None:
        act(grid, numbers)

    runs = [run_app(own_loop(main), apps.query_client()) for _ in range(2)]
    assert first_difference(*runs) == difference
    assert first_difference(runs[0], runs[0]) is None


def test_a_model_that_differs(run_app: RunApp) -> None:
    class Strategy(apps.FedAvg):  # type: ignore[misc]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, measured = super().aggregate_train(server_round, replies)
            noise = torch.randn(1, generator=torch.Generator().manual_seed(next(numbers)))
            state = {name: value + noise for name, value in arrays.to_torch_state_dict().items()}
            return ArrayRecord(state), measured

    numbers = count()
    server = apps.strategy_server(Strategy, rounds=1, fraction_evaluate=0.0)
    runs = [run_app(server, apps.torch_client()) for _ in range(2)]
    assert first_difference(*runs) == "the ServerApp returns another model"


def test_keys_of_secure_aggregation_are_no_difference(run_app: RunApp) -> None:
    scenario = {"task": {"clients": 3}, "devices": devices()}
    runs = [run_app(apps.secure_server(1, 3), apps.secure_client(), scenario) for _ in range(2)]
    assert not runs[0].messages["reply_hash"].equals(runs[1].messages["reply_hash"])
    assert first_difference(*runs) is None
