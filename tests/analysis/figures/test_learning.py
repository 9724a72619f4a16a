"""Figures of learning against independent queries of the Parquet files."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.analysis.figures.learning import by_class, drop, metric_names, target_levels
from fedsim.analysis.report import render
from fedsim.analysis.run import Run
from fedsim.vocabulary.formatting import format_share
from fedsim.vocabulary.metrics import definition
from tests.analysis.documents import columns, drawn, parquet, values_of


def test_learning_curve(run: Run, document: dict[str, Any]) -> None:
    shown, metrics, dispatches = (
        columns(document, "learning"),
        parquet(run, "metrics"),
        parquet(run, "dispatches"),
    )
    for name in ("time_s", "version", "round", "accuracy", "loss"):
        assert shown[name] == metrics[name].tolist()
    for index in (0, 3, len(metrics) - 1):
        past = dispatches[dispatches["ended_s"] <= metrics["time_s"][index]]
        assert shown["bytes"][index] == past["bytes_down"].sum() + past["bytes_up"].sum()
        begun = past.dropna(subset="downloaded_s")
        computed = (begun["computed_s"].fillna(begun["ended_s"]) - begun["downloaded_s"]).sum()
        assert shown["compute_s"][index] == pytest.approx(computed)
    reached = metrics.loc[metrics["accuracy"] >= 0.8, "time_s"].min()
    assert document["learning"]["targets"] == {"accuracy": {"target": 0.8, "time_s": reached}}


def test_times_to_target(run: Run, document: dict[str, Any]) -> None:
    shown, metrics = columns(document, "targets"), parquet(run, "metrics")
    assert 0.8 in shown["level"]
    for level, time_s, version in zip(
        shown["level"], shown["time_s"], shown["version"], strict=True
    ):
        first = metrics[metrics["accuracy"] >= level].iloc[0]
        assert (time_s, version) == (first["time_s"], first["version"])
    marked = re.findall(r'<th scope="row">([\d.]+%) <span class="mark">target</span>', render(run))
    assert marked == ["80.0%"]
    assert shown["level"][document["targets"]["stated"]] == 0.8


def test_target_levels() -> None:
    assert target_levels(definition("accuracy"), [0.1, 0.92, 0.9], 0.8) == [
        0.65,
        0.7,
        0.75,
        0.8,
        0.85,
        0.9,
    ]
    assert target_levels(definition("accuracy"), [0.1, 0.3], 0.8) == [0.15, 0.2, 0.25, 0.3, 0.8]
    # Those of other metrics are rounded, and closer to each other near the best value.
    assert target_levels(definition("loss"), [2.3, 0.21, math.nan], None) == [
        1,
        0.7,
        0.4,
        0.3,
        0.23,
    ]
    assert target_levels(definition("r2"), [-44.1, 0.9713], 0.9) == [-20, -10, -4, -1, 0.5, 0.9]
    assert target_levels(definition("loss"), [2.29005, 2.29004], None) == []
    assert target_levels(definition("loss"), [1.0, 1.0], None) == []
    assert target_levels(definition("loss"), [1.0, math.nextafter(1.0, 0)], None) == []
    assert target_levels(definition("loss"), [], 0.5) == [0.5]


def test_a_drop_names_those_whose_updates_entered(tmp_path: Path) -> None:
    """Three clients with one label each work together; then one of them works alone, and the model forgets."""
    rounds = [[0, 1, 2]] * 8 + [[2]]
    run = fedsim.run(
        {
            "task": {
                "name": "supervised",
                "dataset": {"name": "gaussian_mixture", "classes": 3, "samples": 300},
                "partition": {"name": "shards", "clients": 3, "classes_per_client": 1},
                "model": "logistic_regression",
            },
            "training": {"local_epochs": 5, "optimizer": {"name": "sgd", "lr": 0.2}},
            "devices": {
                "compute": {"name": "values", "step": "1s"},
                "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
            },
            "server": {"selection": {"name": "scripted", "rounds": rounds}},
            "evaluation": {"every_rounds": 1, "by_class": True},
            "stop": {"rounds": len(rounds)},
        },
        tmp_path / "run",
    )
    classes = drawn(by_class(run))
    last = [column.values[-1] for column in classes.columns[1:]]
    assert last == sorted(last)
    means = np.mean([column.values for column in classes.columns[1:]], axis=0)
    assert means == pytest.approx(run.metrics["balanced_accuracy"])
    assert "class_accuracy_0" not in metric_names(run)
    figure = drawn(drop(run))
    before, after = run.metrics["accuracy"].tail(2)
    assert f"from {format_share(before)} to {format_share(after)}" in figure.finding
    assert "received 1 update of 1 client, none of them for the first time" in figure.finding
    shown = values_of(figure)
    assert (shown["client_id"], shown["updates"], shown["all"]) == ([2], [1], [9])
    assert run.partition is not None
    held = run.partition[run.partition["client_id"] == 2].set_index("label")["count"]
    assert shown["label"] == [f"label {held.idxmax()}"]
    assert shown["share"] == [held.max() / held.sum()]
