"""Mistakes in a scenario are reported together, each with its place."""

from pathlib import Path

import pytest

from tests.lines import rows
from tests.scenario.minimal import MINIMAL, errors

pytestmark = pytest.mark.usefixtures("catalog")


def test_all_errors_of_a_file_are_reported_in_its_order(tmp_path: Path) -> None:
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
    assert errors(tmp_path, text) == [
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


MORE = r"""
server: {failure_detection: nevr} | 6:29: server.failure_detection: 'nevr' is not a duration: write
devices: {failures: {upload_loss: 90%}} | 6:35: devices.failures.upload_loss: must be a number, not '90%'\n  write 0.9
training: {optimizer: {lr: '0,1'}} | 6:28: training.optimizer.lr: must be a number, not '0,1'\n  decimal
training: {batch_size: '1,024'} | 6:24: training.batch_size: must be a whole number, not '1,024'\n  write 1024
sweep: {seeds: 3} | 6:16: sweep.seeds: must be a list, not 3\n  write [3]
name: has space | 6:7: name: 'has space' is not a name of letters, digits, dots
sweep: {zip: {seed: [1, 2], name: [a]}} | 6:8: sweep: the lists of zip must be of equal length; seed has 2
devices: {energy: {classes: {a: {compute_w: 1, download_w: 1}}}} | 6:30: devices.energy.classes.a.upload_w: is missing
devices: {energy: {compute_w: 1e15}} | 6:31: devices.energy.compute_w: must be less than or equal to 100000000, not 1
devices: {failures: {crash_rate: 1e300}} | 6:34: devices.failures.crash_rate: must be a number, not 1e+300; the largest
devices: {carbon: {file: "{region}.csv"}} | 6:19: devices.carbon: give a region, for which {region} in the name
devices: {exclude: [99999999999999999999]} | 6:21: devices.exclude.0: must be a whole number, not 1e+20; the largest is
"""
"""Sections that make a mistake of the shortest scenario, and its message."""
REPLACED = r"""
{name: iid} | {name: shards} | 3:3: task.partition.size: is missing\n  How many.
{name: iid} | {} | 3:3: task.partition.name: is missing
rounds: 3 | simulated_time: 0 | 5:24: stop.simulated_time: must be greater than 0, not 0
task: | task:\n  name: quadratik | 2:9: task.name: there is no task named 'quadratik'\n  did you mean
"""


@pytest.mark.parametrize(("more", "expected"), rows(MORE))
def test_one_error(tmp_path: Path, more: str, expected: str) -> None:
    (error,) = errors(tmp_path, f"{MINIMAL}{more}\n")
    assert error.startswith(f"s.yaml:{expected}")


@pytest.mark.parametrize(("old", "new", "expected"), rows(REPLACED))
def test_one_error_in_a_part(tmp_path: Path, old: str, new: str, expected: str) -> None:
    (error,) = errors(tmp_path, MINIMAL.replace(old, new))
    assert error.startswith(f"s.yaml:{expected}")


def test_an_error_in_a_list_of_lists(tmp_path: Path) -> None:
    text = "task: {name: quadratic, curvatures: [[1, 2], [x, 3]]}\nstop: {rounds: 1}\n"
    (error,) = errors(tmp_path, text)
    assert error.startswith("s.yaml:1:47: task.curvatures.1.0: must be a number, not 'x'")
