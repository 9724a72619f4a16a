"""What several methods share in their aggregation: running statistics are plainly averaged."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsim.parts.catalog import CATALOG
from tests.learning.problems import Timeline, make_learner, supervised_task
from tests.methods.executed import SECOND_MOMENTS, label, one_round
from tests.methods.fakes import Written, make


@pytest.mark.parametrize(
    "variant",
    [
        {"name": "mifa", "server_lr": 3.0},
        {"name": "fedvarp", "server_lr": 3.0},
        {"name": "fedau", "server_lr": 3.0},
        {"name": "fedawe", "server_lr": 3.0},
        {"name": "fednova", "weights": "uniform"},
        {"name": "fedlga"},
        {"name": "fedlga", "hessian": "identity"},
        {"name": "rescale", "weights": "uniform"},
        {"name": "generalized_fedavg", "every_rounds": 1, "amplification": 9.0},
        {"name": "wait", "server_lr": 3.0},
        {"name": "fedavg", "server_lr": 3.0, "weights": "uniform"},
        {"name": "fedprox", "server_lr": 3.0, "weights": "uniform"},
        {"name": "fedavgm", "server_lr": 3.0, "weights": "uniform"},
        {"name": "fedbuff", "server_lr": 3.0},
        {"name": "scaffold", "server_lr": 3.0},
        {"name": "scaffold", "server_lr": 3.0, "uplink": 1},
    ],
    ids=label,
)
def test_buffers_are_plainly_averaged(variant: dict[str, Any]) -> None:
    """Running statistics are those of FedAvg, however the method weighs, amplifies or corrects parameters."""
    steps = [3, 2, 3, 1]
    learner = one_round(variant, steps)
    fedavg = one_round({"name": "fedavg", "weights": "uniform"}, steps).server["model"]
    trainable = learner.station.task.layout.trainable
    model = learner.server["model"]
    torch.testing.assert_close(model[trainable:], fedavg[trainable:], rtol=1e-5, atol=1e-7)
    if variant["name"] != "scaffold":
        assert (model[:trainable] - fedavg[:trainable]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["fedsum_b", "fedsum", "fedsum_cr"])
def test_buffers_of_the_fedsum_family(name: str) -> None:
    """One local step sees the same batches at the same model as FedAvg; y and h_i have no part in buffers."""
    learner = one_round({"name": name}, [1, 1, 1], assigned=1)
    fedavg = one_round({"name": "fedavg", "weights": "uniform"}, [1, 1, 1], assigned=1)
    trainable = learner.station.task.layout.trainable
    torch.testing.assert_close(
        learner.server["model"][trainable:],
        fedavg.server["model"][trainable:],
        rtol=1e-5,
        atol=1e-7,
    )
    assert not learner.server["merged"][trainable:].any()
    assert not learner.store["gradient"].get([0, 1, 2])[:, trainable:].any()
    assert learner.server["merged"][:trainable].any()


@pytest.mark.parametrize("method", ["feddyn", *SECOND_MOMENTS])
def test_running_statistics_are_averaged_plainly(method: str) -> None:
    """Buffers of batch normalization after one round are those of FedAvg."""
    buffers = []
    for name in (method, "fedavg"):
        kind = CATALOG.parts("method")[name]
        uniform = {"weights": "uniform"} if "weights" in kind.Params.model_fields else {}
        timeline = Timeline()
        timeline.aggregate(*[timeline.dispatch(client, 1) for client in (0, 3, 5)])
        task = supervised_task("batch_norm")
        learner = make_learner(task, method=kind, params=kind.Params.model_validate(uniform))
        timeline.play(learner)
        learner.close()
        buffers.append(learner.server["model"][task.layout.trainable :])
    assert len(buffers[0])
    torch.testing.assert_close(buffers[0], buffers[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("variant", "share"),
    [
        ({"name": "fedavgm", "momentum": 0.5, "server_lr": 2.0}, 1.0),
        ({"name": "fedbuff", "server_lr": 2.0}, 1.0),
        # Its weights are shares of the population: here, two of four clients contribute.
        ({"name": "fedcompass", "alpha": 1, "momentum": 0.5}, 0.5),
        ({"name": "fedcompass", "alpha": 1, "momentum": 0.5, "normalized": True}, 0.5),
    ],
    ids=lambda given: label(given) if isinstance(given, dict) else "",
)
def test_no_momentum_and_no_server_rate_moves_running_statistics(
    variant: dict[str, Any], share: float
) -> None:
    """Statistics move by the mean of the clients' changes, 0.4 and then none at all: never on by themselves."""
    method = make(variant, [1] * 4, buffers=1)
    state = method.initial_state(torch.tensor([0.0, 1.0], dtype=torch.float64))
    for version, mean in ((1, -0.4), (2, 0.0)):
        changes = [[1.0, mean - 0.1], [1.0, mean + 0.1]]
        updates = Written({"delta": changes}, version=version, steps=[2, 6])
        before = float(state["model"][1])
        state = method.aggregate(state, updates)
        assert float(state["model"][1]) == pytest.approx(before + share * mean)
    assert float(state["model"][0]) > 2 * share
