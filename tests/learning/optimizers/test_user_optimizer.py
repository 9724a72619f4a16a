"""An optimizer and a learning-rate schedule of the user's, each one file beside the scenario."""

from __future__ import annotations

from pathlib import Path

import fedsim

OPTIMIZER = '''
"""Sign descent."""
from fedsim.learning.optimizers import Optimizer, OptimizerParams


class SignParams(OptimizerParams):
    scale: float = 1.0
    """Factor on the rate."""


class Sign(Optimizer):
    """Steps of equal length in every coordinate."""

    Params = SignParams

    def step(self, weights, direction, rates, moved=None):
        target = weights if moved is None else moved
        target.sub_(rates * self.params.scale * direction.sign())
'''
RATE = '''
"""Rates that halve with every round."""
from fedsim.learning.rates import RateSchedule


class Halving(RateSchedule):
    """1, 1/2, 1/4, ..."""

    def factor(self, round_number, time_s):
        return 0.5**round_number
'''


def test_an_optimizer_and_a_rate_schedule_from_files(tmp_path: Path) -> None:
    """Two clients at 100 descend |x - 100| from 0 by sign: 3 steps a round of 2 x 1, then of 2 x 1/2."""
    (tmp_path / "my_opt.py").write_text(OPTIMIZER)
    (tmp_path / "my_rate.py").write_text(RATE)
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "task: {name: quadratic, centers: [100, 100]}\n"
        "training:\n  optimizer: {name: 'my_opt.py:Sign', lr: 2, scale: 0.5}\n  lr_schedule: my_rate.py:Halving\n"
        "  local_steps: 3\n  dtype: float64\n"
        "devices: {compute: {name: values, step: 1s}, network: {down: 1Mbps, up: 1Mbps, latency: 0}}\n"
        "stop: {rounds: 2}\n"
    )
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.metrics["loss"].tolist() == [0.5 * (100 - x) ** 2 for x in (0.0, 3.0, 4.5)]
    assert set(run.info["user_code"]) == {
        f"{tmp_path}/my_opt.py:Sign",
        f"{tmp_path}/my_rate.py:Halving",
    }
