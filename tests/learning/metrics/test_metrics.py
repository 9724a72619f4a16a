"""Metrics as parts: values worked out by hand, a user's file, and what the run says about them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

import fedsim
from fedsim.errors import UserError
from fedsim.learning.evaluation import SupervisedEvaluator
from fedsim.learning.metrics import Metric, Predictions, default_metrics
from fedsim.learning.metrics.base import measured
from fedsim.learning.metrics.measures import TopKAccuracy
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.loading import load_part
from tests.cli.invoking import DIGITS, invoke
from tests.composition.worlds import digits
from tests.learning.problems import supervised_task
from tests.learning.test_evaluation import EXECUTION, a_model, outputs_of

CONFUSION = np.array([[3.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])

OWN = '''\
from fedsim.learning.metrics import Metric


class Brier(Metric):
    """Mean squared distance between probabilities and labels."""

    name = "brier"
    higher_is_better = False

    def compute(self, predictions):
        probabilities = predictions.outputs.softmax(1)
        labels = predictions.labels.unsqueeze(1)
        chosen = probabilities.gather(1, labels).squeeze(1)
        return (probabilities.square().sum(1) - 2 * chosen + 1).mean()
'''


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accuracy", 5 / 8),
        ("loss", 0.5),
        ("macro_f1", (2 * 3 / 9 + 2 * 2 / 7) / 2),
        ("balanced_accuracy", (3 / 4 + 2 / 4) / 2),
        ("perplexity", np.exp(0.5)),
    ],
)
def test_values_by_hand(name: str, value: float) -> None:
    metric = CATALOG.parts("metric")[name](None)
    assert metric.compute(Predictions(0.5, CONFUSION)) == pytest.approx(value, rel=1e-15)


class Outputs(Metric):
    """Keeps what it was given."""

    name = "outputs"

    def compute(self, predictions: Predictions) -> float:
        self.predictions = predictions
        return 1.0


@pytest.mark.parametrize("batch", [7, 512])
def test_a_metric_is_given_all_outputs_in_order(batch: int) -> None:
    task, metric = supervised_task("mlp"), Outputs(None)
    model = a_model(task)
    measured = SupervisedEvaluator(task, EXECUTION, batch, [metric]).measure(model)
    plain = SupervisedEvaluator(task, EXECUTION, batch).measure(model)
    assert list(measured.items()) == [*plain.items(), ("outputs", 1.0)]
    assert torch.equal(metric.predictions.labels, task.test_y)
    expected = outputs_of(task, model, task.test_x)
    torch.testing.assert_close(metric.predictions.outputs, expected, rtol=1e-12, atol=1e-12)
    assert metric.predictions.confusion.sum() == len(task.test_y)


def test_two_metrics_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    listed = ["own.py:errors", {"name": "own.py:errors", "above": 0.1}]
    two = [load_part("metric", one, tmp_path).create() for one in listed]
    with pytest.raises(UserError, match=r"metrics\.1: two metrics have the name 'errors'"):
        default_metrics("classification", two)


DECLARED = """\
from fedsim.learning.metrics import Metric

def accuracy(outputs, labels): return 0.25
def version(outputs, labels): return 0.25
def units(outputs, labels): return 0.5
units.unit = "percent"
def misspelled(outputs, labels): return 0.5
misspelled.lower_is_better = True

class Own(Metric):
    def compute(self, predictions): return 7.0
class Loss(Own): name = "loss"
class Direction(Own): higher_is_better = "no"
class Greater(Own): greater_is_better = False
class Target(Own): target_kind = "classes"
"""


@pytest.mark.parametrize(
    ("name", "line", "hint"),
    [
        ("accuracy", 3, "my_accuracy: rename"),
        ("version", 4, "my_version: rename"),
        ("Loss", 11, "my_loss: rename"),
        ("Direction", 11, "set it to one of: True, False"),
        ("Target", 11, "set it to one of: None, 'class', 'quantity'"),
        ("units", 5, "set it to one of: 'time', 'count', 'share'"),
        ("misspelled", 7, "use higher_is_better"),
        ("Greater", 11, "use higher_is_better"),
    ],
)
def test_what_a_users_metric_declares_is_checked(
    name: str, line: int, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "declared.py").write_text(DECLARED)
    metric = load_part("metric", {"name": f"declared.py:{name}"}, tmp_path).create()
    with pytest.raises(UserError, match=hint) as caught:
        default_metrics("classification", [metric])
    assert f"({tmp_path / 'declared.py'}:{line})" in caught.value.message


def test_a_refused_metric_is_located_in_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "declared.py").write_text(DECLARED)
    path = tmp_path / "own.yaml"
    path.write_text(f"{DIGITS}evaluation: {{metrics: [perplexity, declared.py:accuracy]}}\n")
    result = invoke("run", path, "-o", tmp_path / "out")
    line = len(path.read_text().splitlines())
    assert result.exit_code == 2
    assert f"own.yaml:{line}:36: evaluation.metrics.1: the metric accuracy" in result.stderr


def scenario(**changes: Any) -> dict[str, Any]:
    return {**digits(), "stop": {"rounds": 2}, **changes}


def test_metrics_of_a_scenario(tmp_path: Path) -> None:
    """A bare name, a part with parameters and a class in the user's own file; what they mean is in run.json."""
    (tmp_path / "own.py").write_text(OWN)
    asked = ["perplexity", {"name": "top_k_accuracy", "k": 3}, "own.py:Brier"]
    asked[2] = f"{tmp_path}/own.py:Brier"
    evaluation = {"every_rounds": 1, "metrics": asked}
    run = fedsim.run(scenario(evaluation=evaluation), tmp_path / "run")
    table = run.metrics
    assert {"perplexity", "top_3_accuracy", "brier"} <= set(table.columns)
    np.testing.assert_allclose(table["perplexity"], np.exp(table["loss"]), rtol=1e-12)
    assert (table["top_3_accuracy"] >= table["accuracy"]).all()
    assert table["brier"].between(0, 2).all()
    meaning = run.info["metric_definitions"]
    assert meaning["brier"] == {"higher_is_better": False, "unit": "number"}
    assert meaning["top_3_accuracy"] == {"higher_is_better": True, "unit": "share"}
    assert meaning["loss"] == {"higher_is_better": False, "unit": "number"}
    assert "client_accuracy" not in meaning
    again = fedsim.run(tmp_path / "run" / "scenario.yaml", tmp_path / "again")
    assert again.metrics.equals(table)


def test_a_target_of_ones_own_metric_is_reached_in_its_direction(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    loaded = fedsim.read_scenario(
        scenario(
            evaluation={"every_rounds": 1, "metrics": [f"{tmp_path}/own.py:Brier"]},
            stop={"rounds": 3, "target": {"brier": 2.0}},
        )
    )
    run = fedsim.run(loaded, tmp_path / "run")
    assert run.info["versions_made"] == 0


FUNCTIONS = """\
def errors(outputs, labels, above=0.9):
    return float((outputs.softmax(1).max(1).values > above).double().mean())

def silent(outputs, labels):
    pass

def needing(outputs, labels, k):
    return float(k)
"""


def test_a_function_takes_parameters_of_the_scenario_and_returns_a_number(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    outputs = torch.tensor([[2.0, 0.0], [0.0, 9.0]])
    predictions = Predictions(0.5, CONFUSION, outputs, torch.tensor([0, 0]))

    def value(name: str, **parameters: Any) -> float:
        part = load_part("metric", {"name": f"own.py:{name}", **parameters}, tmp_path)
        return measured(part.create(), predictions)

    assert (value("errors"), value("errors", above=0.1), value("needing", k=3)) == (0.5, 1.0, 3.0)
    with pytest.raises(UserError, match=r"own\.py:4: the metric silent returned None"):
        value("silent")


def test_a_task_without_test_samples_has_no_such_metrics(tmp_path: Path) -> None:
    quadratic = scenario(
        task={"name": "quadratic", "centers": [1.0, -1.0]},
        evaluation={"metrics": ["accuracy"]},
        devices={"compute": {"name": "values", "step": [1.0, 1.0]}},
        server={"method": {"name": "fedavg"}},
    )
    with pytest.raises(UserError, match="no test samples"):
        fedsim.run(quadratic, tmp_path / "run")


@pytest.mark.parametrize("seed", range(3))
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target, predicted = rng.normal(size=(2, 50)).astype(np.float32)
    loss = float(mean_squared_error(target.astype(float), predicted.astype(float)))
    outputs = torch.from_numpy(predicted).unsqueeze(1)
    predictions = Predictions(loss, np.zeros((0, 0)), outputs, torch.from_numpy(target))
    oracles = {"mse": mean_squared_error, "mae": mean_absolute_error, "r2": r2_score}
    for name, oracle in oracles.items():
        expected = oracle(target.astype(float), predicted.astype(float))
        assert CATALOG.parts("metric")[name](None).compute(predictions) == pytest.approx(
            expected, rel=1e-12
        )


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.75), (3, 1.0), (9, 1.0)])
def test_top_k_by_hand(k: int, expected: float) -> None:
    outputs = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0]])
    labels = torch.tensor([0, 1, 2, 2])
    metric = TopKAccuracy(TopKAccuracy.Params(k=k))
    assert metric.column == f"top_{k}_accuracy"
    assert metric.compute(Predictions(0.0, CONFUSION, outputs, labels)) == expected
