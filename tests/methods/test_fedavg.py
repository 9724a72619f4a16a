"""FedAvg in whole runs, by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

import fedsim
from tests.composition.worlds import quadratic

pytestmark = pytest.mark.usefixtures("without_reports")


def test_fedavg_on_quadratics_gives_the_iterates_worked_out_by_hand(tmp_path: Path) -> None:
    """x -> b + (1 - 0.1 a)^2 (x - b) for each client; the mean of the participants; float64."""
    script = [[0, 1], [1, 2], [0, 1, 2], [2]]
    run = fedsim.run(quadratic(script), tmp_path / "run")
    a, b, x = (1.0, 2.0, 4.0), (0.0, 3.0, -1.0), 1.0
    expected = [x]
    for clients in script:
        x = sum(b[i] + (1 - 0.1 * a[i]) ** 2 * (x - b[i]) for i in clients) / len(clients)
        expected.append(x)
    final = run.model()["x"]
    assert final.dtype == torch.float64
    assert final.item() == pytest.approx(expected[-1], rel=1e-12)
    losses = [sum(0.5 * a[i] * (x - b[i]) ** 2 for i in range(3)) / 3 for x in expected]
    assert run.metrics["loss"].to_list() == pytest.approx(losses, rel=1e-12)
    assert run.metrics["version"].to_list() == [0, 1, 2, 3, 4]
    assert run.metrics["round"].to_list() == [0, 1, 2, 3, 4]
    # 8 bytes at 1 Mbit/s are 64 us each way; two steps of the slowest participant.
    durations = np.diff([0.0, *run.aggregations["time_s"]])
    assert durations == pytest.approx([4.000128, 6.000128, 6.000128, 6.000128], abs=1e-9)


def test_sample_weights_and_server_learning_rate(tmp_path: Path) -> None:
    """Weights 1 : 3 and server learning rate 0.5, one round by hand: changes -0.19 and 0.72."""
    scenario = quadratic(
        [[0, 1]],
        server={
            "method": {"name": "fedavg", "weights": "samples", "server_lr": 0.5},
            "selection": {"name": "scripted", "rounds": [[0, 1]]},
        },
    )
    scenario["task"] = {**scenario["task"], "samples": [1, 3, 1]}
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.model()["x"].item() == pytest.approx(
        1 + 0.5 * (0.25 * -0.19 + 0.75 * 0.72), rel=1e-12
    )
