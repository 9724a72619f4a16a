"""Definitions of metrics: fedsim's own, the user's, and those of old runs."""

import math
from pathlib import Path

import pytest

import fedsim
from fedsim.vocabulary.metrics import (
    METRICS,
    MetricDefinition,
    definition,
    from_document,
    to_document,
)
from tests.composition.worlds import digits, quadratic

QUADRATIC = quadratic([[0]])
PARTITION = {"name": "iid", "clients": 4, "test": "split", "test_share": 0.3}


def test_every_metric_that_a_task_measures_is_defined(tmp_path: Path) -> None:
    per_client = digits(stop={"rounds": 1}, evaluation={"per_client": True})
    per_client["task"] = {**per_client["task"], "partition": PARTITION}
    for name, scenario in (("quadratic", QUADRATIC), ("digits", per_client)):
        measured = set(fedsim.run(scenario, tmp_path / name).metrics.columns[3:])
        assert len(measured) >= 3
        assert measured <= METRICS.keys()


@pytest.mark.parametrize("name", ["loss", "client_loss", "perplexity", "gradient_norm", "distance"])
def test_lower_is_better(name: str) -> None:
    assert not definition(name).higher_is_better
    assert definition(name).best([3.0, 1.0, math.nan]) == 1.0
    assert definition(name).reached([3.0, 1.0, math.nan], 2.0).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("r2", 70, "are at most 1\n  write 0.7 for 70%"),
        ("mse", -1, "are at least 0"),
        ("accuracy", -0.1, "lie between 0 and 1"),
    ],
)
def test_values_that_a_metric_cannot_have_are_refused_as_targets(
    name: str, value: float, limits: str
) -> None:
    error = definition(name).unreachable(value, "stop.target")
    assert f"{name} never reaches {value:g}; its values {limits}" in str(error)
    assert definition("r2").unreachable(-3, "stop.target") is None


def test_only_a_kind_of_accuracy_follows_its_value() -> None:
    assert definition("client_accuracy_worst").format_target(0.9) == "90% client accuracy worst"
    assert definition("accuracy").format_named(0.9) == "90.0% accuracy"
    assert definition("r2").format_named(0.9) == "R² of 0.9"
    assert definition("macro_f1").format(0.5) == "50.0%"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("accuracy", "90% accuracy"),
        ("mse", "an MSE of 0.9"),
        ("r2", "an R² of 0.9"),
        ("macro_f1", "a macro F1 of 90%"),
        ("objective_loss", "an objective loss of 0.9"),
        ("user_score", "a user score of 0.9"),
    ],
)
def test_a_value_after_a_verb_has_an_article(name: str, text: str) -> None:
    metric = definition(name)
    assert metric.with_article(metric.format_target(0.9)) == text


def test_an_unknown_metric_is_a_number_of_which_more_is_better() -> None:
    """Nothing is guessed from words: an error, or an accuracy, of the user's may mean anything."""
    for name in ("my_error", "top5_accuracy"):
        assert definition(name) == MetricDefinition(name, True, "number", name.replace("_", " "))
    assert definition("m").reached([1.0, 2.0], 2.0).tolist() == [False, True]
    assert math.isnan(definition("m").best([math.nan]))


def test_a_run_carries_the_definitions_of_its_own_metrics(tmp_path: Path) -> None:
    run = fedsim.run(QUADRATIC, tmp_path / "run")
    distance = MetricDefinition("distance", higher_is_better=True, unit="share")
    run.folder.update_info(metric_definitions=to_document([distance]))
    again = fedsim.load(run.path)
    assert again.metric_definition("distance") == distance
    assert again.metric_definition("loss") == METRICS["loss"]
    first = float(again.metrics["distance"].iloc[0])
    assert again.time_to("distance", first) == again.metrics["time_s"].iloc[0]
    assert fedsim.compare(again, targets=["distance=0.1"]).title is not None


def test_definitions_are_read_back_and_unknown_units_become_numbers() -> None:
    auroc = MetricDefinition("auroc", higher_is_better=False, unit="share")
    assert from_document(to_document([auroc])) == {"auroc": auroc}
    assert from_document({"x": {"unit": "furlongs"}}) == {"x": MetricDefinition("x")}
