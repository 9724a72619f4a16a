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
        ("Wrong", {}, r"returns .* shape \(2, 3\) .* for 2 samples, .* logits \(2, 10\)"),
        ("Tuple", {}, r"returns .* for 2 samples, .*\n  return these alone"),
        ("Broken", {}, "ZeroDivisionError: no idea"),
        ("Unrepeatable", {}, "LSTM.*not reproducible"),
        ("Faulty", {}, r"'Faulty' object has no attribute 'nothing' \(.*own.py:\d+"),
        ("Whole", {}, "type int64 for 2 samples"),
        ("Detached", {}, "(?s)cannot be trained.*detach"),
        ("AllFrozen", {}, "(?s)cannot be trained.*requires_grad=True"),
        ("Masked", {}, r"(?s)cannot process .*'mask'.*inputs: \{input_ids: "),
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


@pytest.mark.parametrize("kept", ["self.h = [h, (h,)]", "if not self.training: self.h = h"])
@pytest.mark.parametrize("executor", ["plain", "stacked"])
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
