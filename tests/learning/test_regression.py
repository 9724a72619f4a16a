"""Regression: training and metrics against NumPy and scikit-learn, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

import fedsim
from fedsim.errors import UserError

Floats = npt.NDArray[np.float64]

OWN_MODULE = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(input_shape[0], 8), nn.Tanh(), nn.Linear(8, classes))

    def forward(self, x):
        return self.layers(x)
"""


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """A table of 240 houses in 4 towns: a price that is nearly linear in two features."""
    rng = np.random.default_rng(0)
    area, rooms = rng.normal(size=(2, 240))
    frame = pd.DataFrame({"area": area, "rooms": rooms, "town": np.arange(240) % 4})
    frame["price"] = 3 + 2 * area - rooms + frame.town + rng.normal(scale=0.1, size=240)
    frame["later"] = np.arange(240) >= 160
    path = tmp_path / "houses.csv"
    frame.to_csv(path, index=False)
    return path


def scenario(path: Path, **changes: Any) -> dict[str, Any]:
    """Gradient descent: one step on all samples of every client in each round, averaged by samples."""
    return {
        "task": {
            "dataset": {
                "name": "table",
                "path": str(path),
                "target": "price",
                "target_kind": "quantity",
                "group": "town",
                "is_test": "later",
                "standardize": False,
            },
            "partition": {"name": "natural", "test": "same_distribution"},
            "model": {"name": "linear_regression", "start": "zero"},
        },
        "devices": {
            "compute": {"name": "lognormal", "median": "0.1s"},
            "network": {"name": "static", "down": "10Mbps", "up": "10Mbps"},
        },
        "training": {
            "local_steps": 1,
            "batch_size": 1000,
            "optimizer": {"name": "sgd", "lr": 0.1},
            "dtype": "float64",
        },
        "stop": {"rounds": 30},
        "evaluation": {"every_rounds": 30, "per_client": True},
        **changes,
    }


def descended(frame: pd.DataFrame, steps: int, lr: float) -> Floats:
    """Weights and bias (3,) of gradient descent on the mean squared error, in NumPy."""
    x = np.column_stack([frame[["area", "rooms"]].to_numpy(np.float32), np.ones(len(frame))])
    y = frame["price"].to_numpy(np.float32)
    weights = np.zeros(3)
    for _ in range(steps):
        weights = weights - lr * 2 * x.T @ (x @ weights - y) / len(x)
    return weights


@pytest.mark.usefixtures("with_reports")
def test_federated_averaging_of_single_steps_is_gradient_descent(
    houses: Path, tmp_path: Path
) -> None:
    run = fedsim.run(scenario(houses), tmp_path / "run")
    frame = pd.read_csv(houses)
    test = frame[frame.later]
    weights = descended(frame[~frame.later], 30, 0.1)
    predicted = test[["area", "rooms"]].to_numpy(np.float32) @ weights[:2] + weights[2]
    last = run.metrics.iloc[-1]
    assert last["loss"] == pytest.approx(mean_squared_error(test.price, predicted), rel=1e-6)
    assert last["mae"] == pytest.approx(mean_absolute_error(test.price, predicted), rel=1e-6)
    assert last["r2"] == pytest.approx(r2_score(test.price, predicted), rel=1e-6)
    errors = (
        pd.Series(np.abs(predicted - test.price)).groupby(test.town.to_numpy()).mean().to_numpy()
    )
    assert last["client_mae"] == pytest.approx(errors.mean(), rel=1e-6)
    assert last["client_mae_weighted"] == pytest.approx(errors.mean(), rel=1e-6)
    assert last["client_mae_worst"] == pytest.approx(errors.max(), rel=1e-6)
    assert "accuracy" not in run.metrics
    assert not run.metric_definition("mae").higher_is_better
    assert run.report().is_file()


@pytest.mark.parametrize(
    ("model", "executor"),
    [({"name": "mlp", "hidden": [8]}, "auto"), ({"name": "own.py:Net"}, "plain")],
)
def test_other_models_learn_a_quantity(
    houses: Path, tmp_path: Path, model: dict[str, Any], executor: str
) -> None:
    (tmp_path / "own.py").write_text(OWN_MODULE)
    if ":" in model["name"]:
        model = {"name": f"{tmp_path / 'own.py'}:Net"}
    given = scenario(houses, stop={"rounds": 60, "target": {"r2": 0.7}})
    given["task"]["model"] = model
    given["training"] |= {"local_steps": 5, "executor": executor, "dtype": "float32"}
    given["evaluation"] = {"every_rounds": 5, "metrics": ["mse"]}
    run = fedsim.run(given, tmp_path / "run")
    assert run.metrics["r2"].iloc[-1] >= 0.7
    assert (run.metrics["mse"] == run.metrics["loss"]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {"partition": {"name": "shards", "clients": 4}}}, "distributes classes"),
        ({"task": {"model": "logistic_regression"}}, "it predicts classes"),
        ({"task": {"model": "char_lstm"}}, "characters"),
        ({"evaluation": {"metrics": ["accuracy"]}}, "accuracy needs targets of kind class"),
        ({"stop": {"target": {"accuracy": 0.9}}}, "accuracy"),
    ],
)
def test_what_needs_classes_is_refused(
    houses: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    given = scenario(houses)
    for section, values in changes.items():
        given[section] |= values
    with pytest.raises(UserError, match=message) as refusal:
        fedsim.run(given, tmp_path / "run")
    assert "task" in changes or "r2" in str(refusal.value.hint)


def test_metrics_and_models_of_quantities_are_refused_for_classes(tmp_path: Path) -> None:
    given = scenario(tmp_path / "unused")
    partition = {"name": "iid", "clients": 4}
    given["task"] = {"dataset": "digits", "partition": partition, "model": "mlp"}
    given["evaluation"] = {"metrics": ["mae"]}
    with pytest.raises(UserError, match="mae needs targets of kind quantity"):
        fedsim.run(given, tmp_path / "run")
    given["task"]["model"] = "linear_regression"
    with pytest.raises(UserError, match="it predicts a quantity"):
        fedsim.run(given, tmp_path / "run")
