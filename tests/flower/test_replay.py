"""The beginning of an app, run twice: the first difference is named, and which of the two apps made it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedsim.cli import cli
from fedsim.flower import mark_version
from fedsim.flower.replay import first_difference
from tests.flower import apps
from tests.flower.worlds import devices, own_loop

pytestmark = pytest.mark.usefixtures("without_reports")

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


@pytest.mark.parametrize(
    ("draw", "code", "output"),
    [
        ("random.random() + np.random.random()", 0, "replay: 2 messages and 0 model versions are"),
        (
            "np.random.default_rng().random()",
            2,
            "the ClientApp gives message 0 (query, partition 0",
        ),
    ],
)
def test_a_generator_that_the_system_seeds_is_found(
    tmp_path: Path, draw: str, code: int, output: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "drawing.py").write_text(APP.replace("DRAW", draw))
    arguments = ["scenario", "check", "--replay", str(tmp_path), "-s", "task.clients=3"]
    result = CliRunner().invoke(cli, [*arguments, "--run-config", "nodes=2"])
    assert output in result.output
    assert result.exit_code == code
    assert ("default_rng(seed)" in result.output) == bool(code)


def a_config(grid: Grid, numbers: Iterator[int]) -> None:
    content = RecordDict({"config": ConfigRecord({"number": next(numbers)})})
    list(grid.send_and_receive([Message(content, next(iter(grid.get_node_ids())), "query")]))


def more_messages(grid: Grid, numbers: Iterator[int]) -> None:
    nodes = list(grid.get_node_ids())[: next(numbers)]
    list(grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes]))


def other_nodes(grid: Grid, numbers: Iterator[int]) -> None:
    node = list(grid.get_node_ids())[next(numbers)]
    list(grid.send_and_receive([Message(RecordDict(), node, "query")]))


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
    run_app: Callable[..., Any], act: Callable[..., None], difference: str
) -> None:
    numbers = count(1)

    def main(grid: Grid, context: Context) -> None:
        act(grid, numbers)

    runs = [run_app(own_loop(main), apps.query_client()) for _ in range(2)]
    assert first_difference(*runs) == difference
    assert first_difference(runs[0], runs[0]) is None


def test_a_model_that_differs(run_app: Callable[..., Any]) -> None:
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


def test_keys_of_secure_aggregation_are_no_difference(run_app: Callable[..., Any]) -> None:
    scenario = {"task": {"clients": 3}, "devices": devices()}
    runs = [run_app(apps.secure_server(1, 3), apps.secure_client(), scenario) for _ in range(2)]
    assert not runs[0].messages["reply_hash"].equals(runs[1].messages["reply_hash"])
    assert first_difference(*runs) is None
