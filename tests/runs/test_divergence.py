"""Diverged runs: from which evaluation on which metric is not finite."""

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


def run_of(columns: dict[str, list[float]], *metrics: Any, **info: Any) -> Any:
    """A run with evaluations of versions 0, 1, ... at 0 s, 10 s, ..., and metrics of its scenario."""
    rows = range(len(next(iter(columns.values()))))
    whens = {"time_s": [10.0 * row for row in rows], "version": rows, "round": rows}
    return SimpleNamespace(
        metrics=pd.DataFrame({**whens, **columns}),
        info=info,
        scenario={
            "evaluation": {"metrics": list(metrics)},
            "server": {"method": {"name": "fedavg"}},
        },
        metric_definition=METRICS.__getitem__,
    )


SHARE = {"loss": [1.0, 1.0], "share": [0.5, NAN]}


@pytest.mark.parametrize(
    ("run", "lost", "diverged"),
    [
        # A metric is lost from the evaluation after its last finite value.
        (
            run_of({"accuracy": [0.1, 0.2, 0.3, NAN], "loss": [2.0, NAN, 3.0, math.inf]}),
            [Lost("accuracy", 3, 30.0), Lost("loss", 3, 30.0)],
            True,
        ),
        (run_of({"loss": [1.0, NAN, NAN]}), [Lost("loss", 1, 10.0)], True),
        # A run that recovers has not diverged.
        (run_of({"loss": [1.0, NAN, 2.0]}), [], False),
        # A metric of the user may be undefined.
        (run_of(SHARE, "rare.py:share", "accuracy"), [Lost("share", 1, 10.0)], False),
        (run_of(SHARE, {"name": "rare.py:share"}), [Lost("share", 1, 10.0)], False),
    ],
)
def test_a_model_has_diverged_if_its_last_values_are_not_finite(
    run: Any, lost: list[Lost], diverged: bool
) -> None:
    assert lost_metrics(run) == [each.metric for each in lost]
    assert lost_since(run) == lost
    assert has_diverged(run) == diverged
    own = ["rare.py:share"] if run.scenario["evaluation"]["metrics"] else []
    assert own_metrics(run.scenario) == own


def test_the_record_of_a_finished_run_decides() -> None:
    values = {"loss": [1.0, 2.0]}
    assert last_metrics(run_of(values)) == {"loss": 2.0}
    # What is not finite is null in run.json.
    assert lost_metrics(run_of(values, metrics={"loss": None})) == ["loss"]
    assert math.isnan(last_metrics(run_of(values, metrics={"loss": None}))["loss"])
