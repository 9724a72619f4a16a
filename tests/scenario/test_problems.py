"""Mistakes in a scenario are reported together, each with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.parts.catalog import Catalog
from tests.scenario.minimal import MINIMAL, errors


def test_all_errors_of_a_file_are_reported_in_its_order(tmp_path: Path, catalog: Catalog) -> None:
    text = """\
nmae: x
seed: true
task:
  dataset: {name: digitz}
  partition: {name: dirichlet, alfa: 0.3, wait: 3 parsecs}
  model: 3
training: {optimizer: {name: sgf, lr: -1}, local_steps: 3.5, batch_size: .nan, device: gppu}
stop: {}
"""
    assert errors(tmp_path, catalog, text) == [
        "s.yaml:1:1: nmae: unknown key\n  did you mean 'name'?",
        "s.yaml:2:7: seed: must be a whole number, not true",
        "s.yaml:4:19: task.dataset.name: there is no data set named 'digitz'\n  did you mean 'digits'?",
        "s.yaml:5:32: task.partition.alfa: unknown key\n  did you mean 'alpha'?",
        "s.yaml:5:49: task.partition.wait: '3 parsecs' has no known unit of a duration: use one of ns, us, ms, s, min, "
        "h, d",
        "s.yaml:6:10: task.model: must be the name of a model, or a mapping of its name and parameters, not 3",
        "s.yaml:7:30: training.optimizer.name: there is no optimizer named 'sgf'\n  did you mean 'sgd'?",
        "s.yaml:7:57: training.local_steps: must be a whole number, not 3.5",
        "s.yaml:7:74: training.batch_size: must be a finite number, not nan",
        "s.yaml:7:88: training.device: must be 'auto', 'cpu' or 'cuda', not 'gppu'",
        "s.yaml:8:7: stop: give at least one of simulated_time, rounds, dispatches and arrivals, so that the run ends",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "s.yaml: the scenario is empty"),
        ("# nothing\n", "s.yaml: the scenario is empty"),
        ("- a\n", "s.yaml: a scenario is a mapping of sections"),
        (
            MINIMAL.replace("{name: iid}", "{name: shards}"),
            "s.yaml:3:3: task.partition.size: is missing\n  How many.",
        ),
        (
            MINIMAL.replace("{name: iid}", "{}"),
            "s.yaml:3:3: task.partition.name: is missing",
        ),
        (
            "task: {name: quadratik}\nstop: {rounds: 1}\n",
            "s.yaml:1:14: task.name: there is no task named 'quadratik'\n  did you mean 'quadratic'?",
        ),
        (
            MINIMAL + "server: {failure_detection: nevr}\n",
            "s.yaml:6:29: server.failure_detection: 'nevr' is not a duration: write a number and a unit, such as "
            "12min, 12h, 12d, or must be 'never'",
        ),
        (
            "task: {name: quadratic, curvatures: [[1, 2], [x, 3]]}\nstop: {rounds: 1}\n",
            "s.yaml:1:47: task.curvatures.1.0: must be a number, not 'x'",
        ),
        (
            MINIMAL + "devices: {failures: {upload_loss: 90%}}\n",
            "s.yaml:6:35: devices.failures.upload_loss: must be a number, not '90%'\n  write 0.9",
        ),
        (
            MINIMAL + "training:\n  optimizer:\n    lr: 0,1\n",
            "s.yaml:8:9: training.optimizer.lr: must be a number, not '0,1'\n"
            "  decimal numbers are written with a point: 0.1",
        ),
        (
            MINIMAL + "training:\n  batch_size: 1,024\n",
            "s.yaml:7:15: training.batch_size: must be a whole number, not '1,024'\n"
            "  write 1024, or 1.024 if the comma is a decimal point",
        ),
        (
            MINIMAL + "training: {local_steps: 1, local_epochs: 2}\n",
            "s.yaml:6:11: training: give only one of local_steps",
        ),
        (
            MINIMAL + "sweep: {seeds: 3}\n",
            "s.yaml:6:16: sweep.seeds: must be a list, not 3\n  write [3]",
        ),
        (
            MINIMAL + "evaluation: {every: 0s}\n",
            "s.yaml:6:21: evaluation.every: must be longer than 0 s, not '0s'",
        ),
        (
            MINIMAL + "name: has space\n",
            "s.yaml:6:7: name: 'has space' is not a name of letters, digits, dots, dashes and "
            "underscores\n  write has-space",
        ),
        (
            MINIMAL + "sweep: {zip: {seed: [1, 2], name: [a]}}\n",
            "s.yaml:6:8: sweep: the lists of zip must be of equal length; seed has 2, name has 1",
        ),
        (
            MINIMAL + "devices: {energy: {classes: {phone: {compute_w: 1, download_w: 1}}}}\n",
            "s.yaml:6:30: devices.energy.classes.phone.upload_w: is missing",
        ),
    ],
)
def test_one_error(tmp_path: Path, catalog: Catalog, text: str, expected: str) -> None:
    error = errors(tmp_path, catalog, text)
    assert len(error) == 1
    assert error[0].startswith(expected)
