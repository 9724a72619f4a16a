"""A module that cannot be trained is refused before the run, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedsim.cli import cli
from fedsim.errors import UserError
from tests.tasks.users import own_task

pytestmark = pytest.mark.usefixtures("without_reports")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Net", {"depth": 3}, "depth: unknown key"),
        ("Net", {"width": "many"}, "width: must be a number, not 'many'"),
        ("Wrong", {}, r"returns \(2, 3\) for 2 samples, expected \(2, 10\)"),
        (
            "Tuple",
            {},
            r"returns tuple for 2 samples, expected \(2, 10\)\n  return the logits alone",
        ),
        ("Broken", {}, "ZeroDivisionError: no idea"),
        ("Unrepeatable", {}, "LSTM.*not reproducible"),
        (
            "Faulty",
            {},
            r"AttributeError: 'Faulty' object has no attribute 'nothing' \(.*own.py:\d+",
        ),
        ("Whole", {}, "numbers of type torch.int64"),
        ("Detached", {}, "have no gradient with respect to its parameters"),
        ("AllFrozen", {}, "no trainable parameters"),
        ("Nothing", {}, "no trainable parameters"),
        ("Lazy", {}, "shape of last.weight, last.bias .* is unknown before its first use"),
        ("OnlyEvaluated", {}, r"cannot be trained: KeyError: 'mode' \(.*own.py:\d+"),
        ("Neither", {}, "own.py:\\d+: Neither does not derive from torch.nn.Module"),
        ("Missing", {}, "has no class or function named 'Missing'"),
    ],
)
def test_a_users_model_that_cannot_be_used_says_why(
    users: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        own_task(users, name, **options)


def test_batch_norm_refuses_one_sample_alone(users: Path) -> None:
    reason = own_task(users, "Normed").refusal_of_one_sample()
    assert reason is not None
    assert "more than 1 value per channel" in reason
    assert own_task(users, "Small").refusal_of_one_sample() is None


MODULE = """\
import random
from collections import deque
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

RNG = np.random.default_rng(0)
SEEN = []


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.calls, self.log = 0, deque([0], maxlen=3)
        {made}

    def forward(self, x):
        x = x.flatten(1)
        {used}
        return self.layer(x)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)
"""


def built(folder: Path, made: str, used: str) -> Any:
    (folder / "own.py").write_text(MODULE.format(made=made, used=used))
    return own_task(folder, "Own")


GLOBAL = "Own.forward: draws from or seeds the global random generator of"
KEPT = "Inner.forward: draws from the generator self.rng, whose numbers depend on the clients"
CHANGED = "which would pass from one client to the next"
EVALUATED = "Own.forward: draws random numbers in evaluation too"
OUTPUTS = "Own.forward: gives different outputs for the same samples and parameters"


@pytest.mark.parametrize(
    ("made", "used", "message"),
    [
        ("", "x = x + np.random.normal()", f"{GLOBAL} numpy"),
        ("", "x = x * random.random()", f"{GLOBAL} random"),
        ("self.rng = torch.Generator()", "x = x + torch.rand(1, generator=self.rng)", KEPT),
        ("self.rng = np.random.default_rng(0)", "x = x + self.rng.normal()", KEPT),
        ("self.rng = np.random.RandomState(0)", "x = x + self.rng.normal()", KEPT),
        ("self.rng = random.Random(0)", "x = x + self.rng.random()", KEPT),
        ("", "x = torch.nn.functional.dropout(x, 0.5)", EVALUATED),
        ("", "x = x + (0 if self.training else torch.randn(1))", EVALUATED),
        ("", "x = x + np.random.default_rng().normal()", OUTPUTS),
        ("", "x = x + RNG.normal()", OUTPUTS),
        ("", "SEEN.append(1); x = x + len(SEEN)", OUTPUTS),
        ("", "self.calls += 1", f"Inner.forward: changes self.calls, {CHANGED}"),
        ("", "self.log.append(len(x) + self.log[-1])", f"changes self.log, {CHANGED}"),
        ("self.o = SimpleNamespace(n=0)", "self.o.n += 1", f"changes self.o, {CHANGED}"),
        (
            "self.m = torch.zeros(64)",
            "self.m = 0.9 * self.m + x.mean(0)",
            f"changes self.m, {CHANGED}",
        ),
        # Statistics of the first mini-batch that a copy sees, as in data-dependent initialization.
        ("self.m = None", "self.m = x.mean() if self.m is None else self.m", "changes self.m"),
    ],
)
def test_a_module_with_a_memory_or_random_numbers_of_its_own_is_refused(
    tmp_path: Path, made: str, used: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        built(tmp_path, made, used)
    assert f"{tmp_path / 'own.py'}:" in str(caught.value.where)
    assert message in str(caught.value)


def test_a_layer_of_dropout_that_trains_in_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"dropout is active in evaluation: forward must not call train\(\)"
    ):
        built(tmp_path, "self.drop = nn.Dropout(0.5)", "self.drop.train(); x = self.drop(x)")


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("", ""),
        ("self.drop = nn.Dropout(0.5)", "x = self.drop(x)"),
        ("", "x = torch.nn.functional.dropout(x, 0.5, self.training)"),
        (
            "",
            "x = torch.nn.functional.dropout2d(x.view(-1, 4, 4, 4), 0.5, self.training).flatten(1)",
        ),
        ("import logging; self.log_of = logging.getLogger('l')", "self.log_of.info('x')"),
        ("self.norm = nn.BatchNorm1d(64)", "x = self.norm(x)"),
        ("self.norm = nn.BatchNorm1d(64, momentum=None)", "x = self.norm(x)"),
        (
            "self.register_buffer('seen', torch.zeros(64))",
            "self.seen = self.seen + x.detach().mean(0)",
        ),
        # What the last call leaves behind for others to look at, and a table that every call would make equal.
        ("self.shown = None", "self.shown = x.detach()"),
        (
            "self.table = None",
            "self.table = torch.arange(64.0) if self.table is None else self.table; x = x + self.table",
        ),
        ("", "x = x + np.random.default_rng(3).normal()"),
        (
            "self.kept = np.random.default_rng(0).normal(size=64)",
            "x = x + torch.from_numpy(self.kept).float()",
        ),
        ("self.apart = [nn.Linear(2, 2)]", ""),
        ("self.rng = torch.Generator()", ""),
    ],
)
def test_other_modules_are_not(tmp_path: Path, made: str, used: str) -> None:
    state = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]  # noqa: NPY002
    assert built(tmp_path, made, used).parameters >= 650
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index, union-attr]  # noqa: NPY002


REMEMBERING = """\
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.a, self.b = nn.Linear(8, 6), nn.Linear(6, classes)

    def forward(self, x):
        h = torch.relu(self.a(x.flatten(1)))
        {kept}
        return self.b(h)
"""
RUN = """\
name: own
task:
  name: supervised
  dataset: {name: npz, path: own.npz}
  partition: {name: iid, clients: 6}
  model: {name: "own.py:Own"}
training: {optimizer: {name: sgd, lr: 0.1}, local_steps: 3, batch_size: 4}
devices:
  compute: flops
  network: {name: static, down: 1Mbps, up: 1Mbps}
server: {method: {name: fedavg}}
evaluation: {every: 1s}
stop: {rounds: 2}
"""


@pytest.mark.parametrize(
    "kept",
    ["self.h = h", "self.h = [h, (h,)]", "if not self.training: self.h = h"],
)
@pytest.mark.parametrize("executor", ["plain", "stacked", "parallel", "auto"])
def test_a_module_may_keep_activations_of_its_last_call(
    tmp_path: Path, kept: str, executor: str
) -> None:
    (tmp_path / "own.py").write_text(REMEMBERING.format(kept=kept))
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(80, 8)).astype(np.float32), np.arange(80) % 3
    np.savez(tmp_path / "own.npz", x=inputs, y=labels)
    (tmp_path / "own.yaml").write_text(RUN)
    options = ["-o", str(tmp_path / "out"), "-s", f"training.executor={executor}"]
    ran = CliRunner().invoke(cli, ["run", str(tmp_path / "own.yaml"), *options])
    assert ran.exit_code == 0, ran.output
