"""Diverged runs: from which evaluation on which metric is not finite."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fedsim.runs.divergence import (
    Lost,
    has_diverged,
    last_metrics,
    lost_metrics,
    lost_since,
    own_metrics,
)
from fedsim.vocabulary.metrics import METRICS

NAN = math.nan


def run_of(
    columns: dict[str, list[float]],
    metrics_of_scenario: tuple[Any, ...] = (),
    **info: Any,
) -> Any:
    """A run with evaluations of versions 0, 1, ... at 0 s, 10 s, ..."""
    count = len(next(iter(columns.values()), []))
    whens = {
        "time_s": [10.0 * row for row in range(count)],
        "version": list(range(count)),
        "round": list(range(count)),
    }
    scenario = {
        "evaluation": {"metrics": list(metrics_of_scenario)},
        "server": {"method": {"name": "fedavg"}},
    }
    return SimpleNamespace(
        metrics=pd.DataFrame({**whens, **columns}),
        info=info,
        scenario=scenario,
        metric_definition=METRICS.__getitem__,
    )


def test_a_metric_is_lost_from_the_evaluation_after_its_last_finite_value() -> None:
    run = run_of({"accuracy": [0.1, 0.2, 0.3, NAN], "loss": [2.0, NAN, 3.0, math.inf]})
    assert lost_metrics(run) == ["accuracy", "loss"]
    assert lost_since(run) == [Lost("accuracy", 3, 30.0), Lost("loss", 3, 30.0)]
    assert has_diverged(run)


def test_a_run_that_recovers_has_not_diverged() -> None:
    run = run_of({"loss": [1.0, NAN, 2.0]})
    assert not lost_since(run)
    assert not has_diverged(run)


def test_the_record_of_a_finished_run_decides() -> None:
    run = run_of({"loss": [1.0, 2.0]}, metrics_of_run=None, metrics=[])
    assert last_metrics(run) == {"loss": 2.0}
    recorded = run_of({"loss": [1.0, 2.0]})
    recorded.info["metrics"] = {"loss": NAN}
    assert lost_metrics(recorded) == ["loss"]


@pytest.mark.parametrize("metric", ["rare.py:share", {"name": "rare.py:share"}])
def test_a_metric_of_the_user_may_be_undefined(metric: Any) -> None:
    run = run_of(
        {"loss": [1.0, 1.0], "share": [0.5, NAN]}, metrics_of_scenario=(metric, "accuracy")
    )
    assert own_metrics(run.scenario) == ["rare.py:share"]
    assert lost_metrics(run) == ["share"]
    assert not has_diverged(run)
