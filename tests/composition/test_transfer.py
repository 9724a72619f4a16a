"""Adapters are trained as torch trains them, by every executor."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedsim
from fedsim.errors import UserError
from tests.composition.worlds import digits

USERS = """
import torch
from torch import nn

class Adapted(nn.Module):
    '''A frozen layer of 64 x 32 + 32 numbers with an adapter of 2 x 64 + 32 x 2, and a layer of 32 x 10 + 10.'''

    def __init__(self, classes):
        super().__init__()
        self.base = nn.Linear(64, 32).requires_grad_(False)
        self.register_buffer("scaling", torch.tensor(2.0))
        self.a = nn.Parameter(torch.randn(2, 64) / 8)
        self.b = nn.Parameter(torch.zeros(32, 2))
        self.last = nn.Linear(32, classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(torch.relu(self.base(x) + x @ self.a.T @ self.b.T * self.scaling))
"""


def scenario(**changes: Any) -> dict[str, Any]:
    task = digits()["task"] | {"model": {"name": "own.py:Adapted"}}
    server = {"selection": {"name": "scripted", "rounds": [[0], [0, 1], [1]]}}
    evaluation = {"every_rounds": 9}
    world = {"task": task, "stop": {"rounds": 3}, "server": server, "evaluation": evaluation}
    return digits(**(world | changes))


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_adapters_are_trained_as_torch_trains_them(users: Path) -> None:
    """Three clients' rounds of full-batch SGD in float64, and their mean by samples."""
    training = {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 2, "batch_size": 10_000}
    world = scenario(training=training | {"dtype": "float64"})
    start = fedsim.run(world, users / "zero", overrides=["training.optimizer.lr=1e-300"]).model()
    run = fedsim.run(world, users / "run")

    from fedsim.composition.build import build_task
    from fedsim.scenario.loading import load_scenario

    task: Any = build_task(load_scenario(run.folder.scenario))
    model = copy.deepcopy(task.module).double()
    model.load_state_dict(start)
    for clients in ([0], [0, 1], [1]):
        trained = []
        for client in clients:
            local = copy.deepcopy(model)
            sgd = torch.optim.SGD([p for p in local.parameters() if p.requires_grad], lr=0.1)
            rows = task.rows[task.offsets[client] : task.offsets[client + 1]]
            for _ in range(2):
                outputs = local(task.inputs(task.train_x[rows], torch.float64))
                sgd.zero_grad()
                nn.functional.cross_entropy(outputs, task.train_y[rows]).backward()
                sgd.step()
            trained.append((len(rows), local.state_dict()))
        total = sum(weight for weight, _ in trained)
        mean = {key: sum(w * s[key] for w, s in trained) / total for key in model.state_dict()}
        model.load_state_dict(mean)
    for name, value in model.state_dict().items():
        assert torch.allclose(run.model()[name], value, rtol=1e-12, atol=1e-14), name
    assert run.info["bytes_down_first_dispatch"] == run.dispatches["bytes_down"].max()
    assert run.info["bytes_down_per_dispatch"] == run.dispatches["bytes_down"].min()
    assert torch.equal(run.model()["base.weight"], start["base.weight"])
    assert not torch.equal(run.model()["a"], start["a"])


LATE = """
STEPS = []

class Late(nn.Module):
    '''A count that begins to change after the steps of the checks, or runs as an integer.'''

    def __init__(self, classes, kind):
        super().__init__()
        self.last = nn.Linear(64, classes)
        self.kind = kind
        self.register_buffer("count", torch.tensor(1 if kind == "integer" else 1.0), persistent=kind != "unsaved")

    def forward(self, x):
        STEPS.append(self.training)
        if self.training and (self.kind != "late" or sum(STEPS) > 12):
            self.count += 1
        return self.last(x.flatten(1)) / self.count
"""


@pytest.mark.parametrize("executor", ["plain", "parallel"])
@pytest.mark.parametrize("kind", ["late", "integer", "unsaved"])
def test_state_that_would_neither_be_sent_nor_averaged_is_refused(
    users: Path, kind: str, executor: str
) -> None:
    (users / "own.py").write_text(USERS + LATE)
    model = {"name": "own.py:Late", "kind": kind}
    world = scenario(task=scenario()["task"] | {"model": model})
    with pytest.raises(UserError, match="'count' of model Late changes during the run"):
        fedsim.run(world, users / "run", overrides=[f"training.executor={executor}"])


def test_a_buffer_that_every_step_changes_is_sent(users: Path) -> None:
    (users / "own.py").write_text(USERS + LATE)
    model = {"name": "own.py:Late", "kind": "float"}
    run = fedsim.run(scenario(task=scenario()["task"] | {"model": model}), users / "run")
    assert set(run.dispatches["bytes_up"]) == {4 * (64 * 10 + 10 + 1)}
    assert run.model()["count"] > 1


NORMALIZED = """
from torch import nn, arange, relu

class Net(nn.Module):
    def __init__(self, input_shape, classes, momentum=0.1):
        super().__init__()
        self.body, self.norm = nn.Linear(64, 8), nn.BatchNorm1d(8, momentum=momentum or None)
        self.frozen = nn.Linear(8, 8, bias=False).requires_grad_(False)
        self.head = nn.Linear(8, classes)
        self.register_buffer("table", arange(100))

    def forward(self, x):
        return self.head(relu(self.frozen(self.norm(self.body(x.flatten(1))))))
"""
BODY, NORM, STATISTICS, FROZEN, HEAD = 64 * 8 + 8, 2 * 8, 2 * 8, 8 * 8, 8 * 10 + 10


@pytest.mark.parametrize(
    ("method", "transfer", "values", "first"),
    [
        ("fedavg", "changed", BODY + NORM + STATISTICS + HEAD, FROZEN),
        ("fedavg", "all", BODY + NORM + STATISTICS + HEAD + FROZEN, 0),
        ("fedrep", "changed", BODY + NORM + STATISTICS, FROZEN),
        ("fedrep", "all", BODY + NORM + STATISTICS + FROZEN, 0),
    ],
)
def test_what_is_charged_is_what_the_documentation_says(
    tmp_path: Path, method: str, transfer: str, values: int, first: int
) -> None:
    """Statistics of batch normalization in both directions, frozen parameters once or always, integer buffers never."""
    run = fedsim.run(normalized(tmp_path, method, transfer), tmp_path / "run")
    assert run.info["bytes_up_per_dispatch"] == run.info["bytes_down_per_dispatch"] == 4 * values
    assert run.info["bytes_down_first_dispatch"] == 4 * (values + first)
    assert {"norm.running_mean", "norm.running_var", "frozen.weight"} <= run.model().keys()
    assert not {"norm.num_batches_tracked", "table"} & run.model().keys()


def test_batch_normalization_without_a_momentum_is_refused_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="num_batches_tracked' of model Net changes") as caught:
        fedsim.run(normalized(tmp_path, "fedavg", "all", momentum=0), tmp_path / "run")
    assert "give batch normalization a momentum, such as momentum=0.1" in str(caught.value.hint)


def normalized(folder: Path, method: str, transfer: str, momentum: float = 0.1) -> dict[str, Any]:
    """A scenario with batch normalization, a frozen layer and a buffer of integers."""
    (folder / "net.py").write_text(NORMALIZED)
    return {
        "task": {
            "dataset": "digits",
            "partition": {"name": "iid", "clients": 4, "test": "split"},
            "model": {"name": f"{folder}/net.py:Net", "momentum": momentum},
        },
        "training": {"local_steps": 3, "batch_size": 32},
        "devices": {
            "compute": {"name": "values", "step": "1s"},
            "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
        },
        "server": {"method": method, "transfer": transfer},
        "stop": {"rounds": 2},
    }
