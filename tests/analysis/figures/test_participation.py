"""Figures of participation against independent queries of the Parquet files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.analysis.figures import time
from fedsim.analysis.run import Run
from fedsim.formatting import format_mean_count
from tests.analysis.documents import columns, parquet


def test_online_and_at_work(run: Run, document: dict[str, Any]) -> None:
    shown, online, dispatches = (
        columns(document, "online"),
        parquet(run, "online"),
        parquet(run, "dispatches"),
    )
    assert shown["time_s"] == online["time_s"].tolist()
    assert shown["online"] == online["online"].tolist()
    for place in (0, 10, 100):
        begin, end = shown["time_s"][place : place + 2]
        worked = dispatches["ended_s"].clip(begin, end) - dispatches["dispatched_s"].clip(
            begin, end
        )
        assert shown["working"][place] == pytest.approx(worked.sum() / (end - begin), abs=1e-9)
    # The finding gives the highest point of the curve beside the most clients at one moment.
    highest = format_mean_count(max(mean for mean in shown["working"] if mean is not None))
    figure = time.online(run)
    assert figure is not None
    assert figure.finding.endswith(f"means and peaks at {highest}.")


def test_participation(run: Run, document: dict[str, Any]) -> None:
    dispatches = parquet(run, "dispatches")
    given = (
        dispatches[dispatches["outcome"] == "aggregated"]
        .groupby("client_id")
        .size()
        .reindex(range(30), fill_value=0)
    )
    shown = columns(document, "participation")
    for low, high, clients in zip(shown["from"], shown["to"], shown["clients"], strict=True):
        assert clients == given.between(low, high).sum()
    assert document["participation"]["never"] == (given == 0).sum()
    shares = given.sort_values().cumsum() / given.sum()
    assert columns(document, "inequality")["updates"][1:] == pytest.approx(shares.tolist())
    pairs = np.abs(given.to_numpy()[:, None] - given.to_numpy()).mean()
    assert document["inequality"]["gini"] == pytest.approx(pairs / 2 / given.mean())


def test_staleness_age_and_delay(run: Run, document: dict[str, Any]) -> None:
    dispatches, aggregations = parquet(run, "dispatches"), parquet(run, "aggregations")
    taken = dispatches[dispatches["outcome"] == "aggregated"]
    # A figure with one bar says nothing: a sentence does.
    assert ("staleness" in document) == (taken["staleness"].nunique() > 1)
    shown = (
        columns(document, "staleness")
        if "staleness" in document
        else dict.fromkeys(("from", "to", "updates"), ())
    )
    for low, high, updates in zip(shown["from"], shown["to"], shown["updates"], strict=True):
        assert updates == taken["staleness"].between(low, high).sum()
    age = (
        taken["aggregated_version"].map(aggregations.set_index("version")["time_s"])
        - taken["dispatched_s"]
    )
    shown = columns(document, "age")
    expected, _ = np.histogram(age, [*shown["from_s"], shown["to_s"][-1]])
    assert shown["updates"] == expected.tolist()
    assert columns(document, "delay")["tau"] == aggregations["delay_max"].tolist()


def test_partition_matrix(run: Run, document: dict[str, Any]) -> None:
    shown, rows = columns(document, "partition"), parquet(run, "partition")
    for label in range(10):
        expected = (
            rows[rows["label"] == label].set_index("client_id").loc[shown["client_id"], "count"]
        )
        assert shown[f"label_{label}"] == expected.tolist()
