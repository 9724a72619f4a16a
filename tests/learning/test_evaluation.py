"""Metrics against their definitions, written out sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.learning.device import Execution
from fedsim.learning.evaluation import ClientMetrics, SupervisedEvaluator
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.kinds.supervised import SupervisedTask
from tests.learning.problems import (
    Remembering,
    make_learner,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import buffered, execute

EXECUTION = Execution.of(make_training(dtype="float64"))


def a_model(task: SupervisedTask, seed: int = 1) -> torch.Tensor:
    return task.initial(Stream(seed, Purpose.INITIAL_MODEL), torch.float64)


def outputs_of(task: SupervisedTask, model: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    module = task.module.double().eval()
    with torch.no_grad():
        for name, value in task.layout.views(model).items():
            module.state_dict()[name].copy_(value)
        result: torch.Tensor = module(task.inputs(x, torch.float64))
    task.module.float()
    return result


@pytest.mark.parametrize("batch", [7, 512])
@pytest.mark.parametrize("name", ["mlp", "conv", "batch_norm"])
def test_metrics_are_their_definitions(
    name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.evaluation._CPU_BATCH", batch)
    task = supervised_task(name)
    model = a_model(task)
    outputs = outputs_of(task, model, task.test_x)
    predicted, actual = outputs.argmax(1).numpy(), task.test_y.numpy()
    metrics = SupervisedEvaluator(task, EXECUTION).measure(model)
    assert metrics["accuracy"] == (predicted == actual).mean()
    losses = -outputs.log_softmax(1)[torch.arange(len(actual)), task.test_y]
    assert metrics["loss"] == pytest.approx(losses.mean().item(), rel=1e-12)
    scores, recalls = [], []
    for label in sorted(set(actual.tolist())):
        hit = ((predicted == label) & (actual == label)).sum()
        false_alarm = ((predicted == label) & (actual != label)).sum()
        missed = ((predicted != label) & (actual == label)).sum()
        scores.append(2 * hit / (2 * hit + false_alarm + missed))
        recalls.append(hit / (hit + missed))
    assert metrics["macro_f1"] == pytest.approx(np.mean(scores), rel=1e-12)
    assert metrics["balanced_accuracy"] == pytest.approx(np.mean(recalls), rel=1e-12)
    assert "perplexity" not in metrics


def test_perplexity_of_next_characters() -> None:
    task = supervised_task("mlp")
    task.inputs = lambda raw, dtype=None: raw.to(dtype or torch.float32)  # type: ignore[method-assign]
    object.__setattr__(task.dataset, "kind", "next_character")
    metrics = SupervisedEvaluator(task, EXECUTION).measure(a_model(task))
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["loss"]), rel=1e-12)


def test_clients_are_measured_on_their_own_samples() -> None:
    task = supervised_task("mlp", own_test=True)
    models = {client: a_model(task, client) for client in range(task.clients)}
    measured = SupervisedEvaluator(task, EXECUTION).measure_clients(models.__getitem__)
    assert measured is not None
    assert task.client_test_rows is not None
    assert task.client_test_offsets is not None
    for client in range(task.clients):
        rows = task.client_test_rows[
            task.client_test_offsets[client] : task.client_test_offsets[client + 1]
        ]
        outputs = outputs_of(task, models[client], task.test_x[rows])
        right = (outputs.argmax(1) == task.test_y[rows]).double().mean().item()
        assert measured.accuracy[client] == pytest.approx(right)
        assert measured.samples[client] == len(rows)


def test_summary_of_clients() -> None:
    metrics = ClientMetrics(
        accuracy=np.array([0.5, np.nan, 1.0, 0.0]),
        loss=np.array([1.0, np.nan, 2.0, 6.0]),
        samples=np.array([6, 0, 3, 1]),
    ).summary()
    assert metrics == {
        "client_accuracy": 0.5,
        "client_accuracy_weighted": (6 * 0.5 + 3 * 1.0 + 1 * 0.0) / 10,
        "client_accuracy_worst": 0.0,
        "client_loss": 3.0,
    }


def test_worst_is_a_tenth_of_the_clients() -> None:
    accuracy = np.arange(20) / 20
    metrics = ClientMetrics(accuracy, accuracy, np.ones(20, dtype=np.int64)).summary()
    assert metrics["client_accuracy_worst"] == pytest.approx((0 + 1 / 20) / 2)


def test_no_own_samples_no_client_metrics() -> None:
    assert make_learner(supervised_task("mlp")).client_metrics() is None
    assert make_learner(quadratic_task()).client_metrics() is None


def test_personal_methods_report_personal_metrics() -> None:
    task = supervised_task("linear", own_test=True)
    _, rows = execute(task, buffered(10), method=Remembering)
    assert {"accuracy", "client_accuracy", "client_accuracy_worst"} <= rows[0][1].keys()
    assert rows[-1][1]["client_loss"] != rows[-1][1]["loss"]


def test_what_a_client_has_goes_by_one_name_whoever_the_model_belongs_to() -> None:
    task = supervised_task("linear", own_test=True)
    _, personal = execute(task, buffered(10), method=Remembering)
    _, common = execute(task, buffered(10), per_client=True)
    assert personal[0][1].keys() == common[0][1].keys()


def test_client_metrics_on_request() -> None:
    task = supervised_task("linear", own_test=True)
    _, rows = execute(task, buffered(10), per_client=True)
    assert "client_accuracy" in rows[0][1]
    assert "client_accuracy" not in execute(task, buffered(10))[1][0][1]


def test_last_accuracy_of_clients_is_that_of_their_own_models() -> None:
    task = supervised_task("linear", own_test=True)
    learner = make_learner(task, method=Remembering)
    buffered(10).play(learner)
    measured = learner.client_metrics()
    assert measured is not None
    models = learner.store["own"].get(list(range(task.clients)))
    for client in range(task.clients):
        assert task.client_test_rows is not None
        assert task.client_test_offsets is not None
        picked = task.client_test_rows[
            task.client_test_offsets[client] : task.client_test_offsets[client + 1]
        ]
        model = (learner.server["model"] - 0.1 * models[client]).double()
        outputs = outputs_of(task, model, task.test_x[picked])
        right = (outputs.argmax(1) == task.test_y[picked]).double().mean().item()
        assert measured.accuracy[client] == pytest.approx(right)


def test_a_quadratic_without_minimum_has_no_distance() -> None:
    task = quadratic_task(
        centers=None, curvatures=None, slopes=[[1.0, 2.0], [3.0, 4.0]], samples=None
    )
    metrics = task.measure(torch.tensor([1.0, 1.0], dtype=torch.float64))
    assert metrics == {"loss": 5.0, "gradient_norm": pytest.approx(13**0.5)}
