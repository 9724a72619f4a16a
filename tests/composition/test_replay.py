"""The beginning of a scenario, run three times: parts that cannot be repeated are named, others pass."""

import contextlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli
from fedsim.composition import replay
from fedsim.errors import UserError
from tests.composition.worlds import digits

PARTS = """\
import random

import numpy as np
import torch
from torch import nn

from fedsim.methods.fedavg import FedAvg
from fedsim.scheduling.base import CohortParams, Selection

SEEN = []


class Selects(Selection):
    Params = CohortParams

    def draw(self, count):
        return self.generator().permutation(self.available())[:count].tolist()


class Shuffles(Selects):
    def draw(self, count):
        clients = self.available().tolist()
        random.shuffle(clients)
        return clients[:count]


class Remembers(Selects):
    def draw(self, count):
        SEEN.append(count)
        return self.available()[len(SEEN) % 2 :][:count].tolist()


class Unordered(Selects):
    def draw(self, count):
        return [int(name) for name in {str(client) for client in self.available()}][:count]


class Counts(FedAvg):
    calls = 0

    def aggregate(self, server, updates):
        self.calls += 1
        moved = super().aggregate(server, updates)["model"]
        return {"model": moved / self.calls}


class Keeps(FedAvg):
    def initial_state(self, model):
        return {"model": model, "count": torch.tensor(0)}

    def aggregate(self, server, updates):
        noise = self.context.generator(updates.version).standard_normal(len(server["model"]))
        moved = super().aggregate(server, updates)["model"] + 0.001 * torch.from_numpy(noise).to(server["model"])
        return {"model": moved, "count": server["count"] + 1}


class Noisy(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x):
        return self.layer(x.flatten(1)) + torch.randn(1)


class Drops(Noisy):
    def forward(self, x):
        return self.layer(nn.functional.dropout(x.flatten(1), 0.2, self.training))


def guess(outputs, labels):
    return np.random.random()


def size(outputs, labels):
    return outputs.abs().mean()
"""


def world(folder: Path, **sections: Any) -> dict[str, Any]:
    (folder / "parts.py").write_text(PARTS, encoding="utf-8")
    given = digits(stop={"rounds": 50})
    # Threads would take turns at random in a module that counts its calls.
    given["training"]["threads"] = 1
    for key, value in sections.items():
        section = given.setdefault("task" if key == "model" else "server", {})
        if key == "metrics":
            given["evaluation"] = {"every_rounds": 1, "metrics": [f"{folder}/parts.py:{value}"]}
        else:
            section[key] = f"{folder}/parts.py:{value}"
    return given


def replayed(scenario: dict[str, Any]) -> Any:
    return fedsim.read_scenario(scenario).replay(8, 2)


class _Here:
    """Takes the place of a process of a replay, whose import of torch takes seconds: the same in this process."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.returncode: Any = 0
        for module in [name for name in sys.modules if name.startswith("fedsim_user_parts")]:
            del sys.modules[module]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            try:
                replay._main(*command[3:])
            except SystemExit as end:
                self.returncode = end.code
        self._output = output.getvalue()

    def communicate(self) -> tuple[str, None]:
        return self._output, None


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(Popen=_Here, PIPE=None, STDOUT=None)
    monkeypatch.setattr(replay, "subprocess", here)


@pytest.mark.parametrize(
    ("key", "name", "why"),
    [
        ("selection", "Shuffles", "draws from a global random generator"),
        ("selection", "Unordered", "the order of a set"),
        ("selection", "Remembers", "keeps state outside its object"),
        ("method", "Counts", "keeps state that no checkpoint contains"),
        ("model", "Noisy", "draws from a global random generator"),
        ("metrics", "guess", "draws from a global random generator"),
    ],
)
def test_a_part_that_cannot_be_repeated_is_named(
    tmp_path: Path, key: str, name: str, why: str, request: pytest.FixtureRequest
) -> None:
    if name != "Unordered":  # The order of a set follows the hashes of a process.
        request.getfixturevalue("without_processes")
    with pytest.raises(UserError) as caught:
        replayed(world(tmp_path, **{key: name}))
    assert f"the {key.removesuffix('s')} parts.py:{name}: it" in caught.value.message
    assert why in caught.value.message
    assert caught.value.hint


@pytest.mark.usefixtures("without_processes")
def test_parts_that_can_be_repeated_pass(tmp_path: Path) -> None:
    parts = {"selection": "Selects", "method": "Keeps", "model": "Drops", "metrics": "size"}
    done = replayed(world(tmp_path, **parts))
    assert done.dispatches >= 8
    assert done.aggregations >= 2
    assert str(done).endswith("are the same in three runs")


@pytest.mark.usefixtures("without_processes")
def test_an_error_of_the_users_code_is_shown(tmp_path: Path) -> None:
    given = world(tmp_path, method="Keeps")
    text = PARTS.replace('server["count"] + 1', 'server["cuont"] + 1')
    (tmp_path / "parts.py").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="your own code fails") as caught:
        replayed(given)
    assert "KeyError: \"cuont: did you mean 'count'?\"" in str(caught.value)
    assert "fedsim/composition" not in str(caught.value)


def test_the_command_replays_and_a_run_mentions_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fedsim.composition.replay.replay", lambda loaded: f"{loaded.scenario.name} is the same"
    )
    (tmp_path / "parts.py").write_text(PARTS, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(
        "task: {name: quadratic, centers: [1, 2]}\n"
        "training: {optimizer: {lr: 0.1}, local_steps: 1}\n"
        "devices: {compute: {name: values, step: 1s}, network: {down: 1Mbps, up: 1Mbps}}\n"
        'server: {selection: "parts.py:Selects"}\nstop: {rounds: 1}\n',
        encoding="utf-8",
    )
    path = str(tmp_path / "own.yaml")
    checked = CliRunner().invoke(cli, ["scenario", "check", path, "--replay"])
    assert checked.exit_code == 0, checked.output
    assert "replay: own is the same\n" in checked.output
    ran = CliRunner().invoke(cli, ["run", path, "-o", str(tmp_path / "run")])
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.count(f"fedsim scenario check --replay {path}\n") == 1
