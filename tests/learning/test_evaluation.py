"""Metrics against their definitions, written out sample by sample."""

import numpy as np
import pytest
import torch

from fedsim.learning.device import Execution
from fedsim.learning.evaluation import ClientMetrics, Objective, SupervisedEvaluator
from fedsim.learning.samples import Samples
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.datasets.generated import ShiftedLogistic
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.models.mlp import Linear
from fedsim.tasks.partition import Partition
from fedsim.tasks.partitions.rules import Natural
from tests.learning.problems import (
    Remembering,
    make_learner,
    make_training,
    module_at,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import buffered, execute

EXECUTION = Execution.of(make_training(dtype="float64"))


def a_model(task: SupervisedTask, seed: int = 1) -> torch.Tensor:
    return task.initial(Stream(seed, Purpose.INITIAL_MODEL), torch.float64)


def outputs_of(task: SupervisedTask, model: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = module_at(task, model).eval()(task.inputs(x, torch.float64))
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


@pytest.mark.parametrize("shared", [False, True])
def test_clients_are_measured_on_their_own_samples(shared: bool) -> None:
    task = supervised_task("mlp", own_test=True)
    models = {client: a_model(task, 0 if shared else client) for client in range(task.clients)}
    evaluator = SupervisedEvaluator(task, EXECUTION, 7)  # batches across clients
    measured = evaluator.measure_clients(models[0] if shared else models.__getitem__)
    assert measured is not None
    rows, offsets = task.client_test_rows, task.client_test_offsets
    assert rows is not None
    assert offsets is not None
    for client, own in enumerate(np.split(rows, offsets[1:-1])):
        outputs = outputs_of(task, models[client], task.test_x[own])
        right = (outputs.argmax(1) == task.test_y[own]).double().mean().item()
        loss = torch.nn.functional.cross_entropy(outputs, task.test_y[own]).item()
        assert measured.accuracy[client] == pytest.approx(right)
        assert measured.loss[client] == pytest.approx(loss)
        assert measured.samples[client] == len(own)


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

    accuracy = np.arange(20) / 20
    metrics = ClientMetrics(accuracy, accuracy, np.ones(20, dtype=np.int64)).summary()
    assert metrics["client_accuracy_worst"] == pytest.approx((0 + 1 / 20) / 2)


def test_no_own_samples_no_client_metrics() -> None:
    assert make_learner(supervised_task("mlp")).client_metrics() is None
    assert make_learner(quadratic_task()).client_metrics() is None


def test_last_accuracy_of_clients_is_that_of_their_own_models() -> None:
    task = supervised_task("linear", own_test=True)
    learner = make_learner(task, method=Remembering)
    buffered(10).play(learner)
    measured = learner.client_metrics()
    assert measured is not None
    own = learner.store["own"].get(list(range(task.clients)))
    models = (learner.server["model"] - 0.1 * own).double()
    expected = SupervisedEvaluator(task, EXECUTION).measure_clients(models.__getitem__)
    assert expected is not None
    assert measured.accuracy == pytest.approx(expected.accuracy)


RHO, SHARED, FEATURES = 0.3, 4, 7


@pytest.fixture(scope="module")
def task() -> SupervisedTask:
    dataset = ShiftedLogistic(
        ShiftedLogistic.Params(groups=3, samples=11, features=FEATURES)
    ).load()
    partition = Natural(Natural.Params()).split(dataset, Stream(0, Purpose.PARTITION))
    model = Linear(Linear.Params(personal_features=FEATURES - SHARED, penalty=RHO))
    return SupervisedTask(dataset, partition, model)


def objective_of(task: SupervisedTask) -> Objective:
    return Objective(Samples(task, task.train_x, task.train_y, EXECUTION))


def by_hand(
    task: SupervisedTask, client: int, w: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[float, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """f_i and its gradient at (u, v) = ``w``."""
    rows = task.rows[task.offsets[client] : task.offsets[client + 1]]
    x = task.dataset.train_x[rows].astype(np.float64)
    c = 2.0 * task.dataset.train_y[rows] - 1
    margin = c * (x @ w)
    value = np.log1p(np.exp(-margin)).mean()
    gradient = -(c / (1 + np.exp(margin))) @ x / len(rows)
    for part in (slice(0, SHARED), slice(SHARED, None)):
        square = w[part] @ w[part]
        value += RHO * square / (1 + square)
        gradient[part] += RHO * 2 * w[part] / (1 + square) ** 2
    return float(value), gradient


@pytest.mark.parametrize("batch", [4, 2048])
def test_the_objective_by_its_formulas(
    task: SupervisedTask, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.evaluation._OBJECTIVE_CPU_BATCH", batch)
    models = np.random.default_rng(1).normal(size=(3, FEATURES))
    models[:, :SHARED] = models[0, :SHARED]
    values, gradients = zip(*[by_hand(task, i, models[i]) for i in range(3)], strict=True)
    by_u = np.mean(gradients, axis=0)[:SHARED]
    by_v = np.array(gradients)[:, SHARED:]
    split = objective_of(task).measure_split(
        lambda client: torch.from_numpy(models[client]), ["personal"]
    )
    assert split == pytest.approx(
        {
            "objective_loss": np.mean(values),
            "gradient_norm_squared": by_u @ by_u,
            "personal_gradient_norm_squared": (by_v**2).sum(axis=1).mean(),
        },
        rel=1e-6,
    )
    values, gradients = zip(*[by_hand(task, i, models[0]) for i in range(3)], strict=True)
    mean = np.mean(gradients, axis=0)
    assert objective_of(task).measure(torch.from_numpy(models[0])) == pytest.approx(
        {"objective_loss": np.mean(values), "gradient_norm_squared": mean @ mean}, rel=1e-6
    )


def test_clients_weigh_the_same_and_those_without_samples_do_not_count() -> None:
    task = supervised_task("mlp", sizes=(20, 7, 0, 33))
    model, alone = a_model(task), []
    for rows in np.split(task.rows, [20, 27]):
        partition = Partition(np.array([0, len(rows)]), rows)
        one = SupervisedTask(task.dataset, partition, task.model)
        alone.append(objective_of(one).measure(model)["objective_loss"])
    assert objective_of(task).measure(model)["objective_loss"] == pytest.approx(np.mean(alone))


def test_a_run_measures_it_on_request() -> None:
    task = supervised_task("linear", own_test=True)
    names = {"objective_loss", "gradient_norm_squared"}
    state, rows = execute(task, buffered(4), objective=True)
    expected = objective_of(task).measure(state["model"].double())
    assert {name: rows[-1][1][name] for name in names} == pytest.approx(expected, rel=1e-4)
    _, rows = execute(task, buffered(4), objective=True, method=Remembering)
    assert names | {"personal_gradient_norm_squared"} <= rows[-1][1].keys()
    assert not names & execute(task, buffered(4))[1][0][1].keys()
