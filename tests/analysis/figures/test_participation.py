"""Figures of participation against independent queries of the Parquet files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.analysis.figures import participation, time
from fedsim.analysis.run import Run
from fedsim.vocabulary.formatting import format_count
from tests.analysis.documents import columns, drawn, parquet
from tests.devices.worlds import LINKS, STEPS, timing
from tests.traces.cases import bundle_of


def test_online_and_at_work(run: Run, document: dict[str, Any]) -> None:
    shown, online, dispatches = (
        columns(document, "online"),
        parquet(run, "online"),
        parquet(run, "dispatches"),
    )
    for index in (0, 10, 50):
        begin, end = shown["time_s"][index : index + 2]
        # Each number lasts until the next one.
        last_s = np.clip([*online["time_s"], max(end, online["time_s"].iloc[-1])], begin, end)
        mean = (online["online"] * np.diff(last_s)).sum() / (end - begin)
        assert shown["online"][index] == pytest.approx(mean)
        worked = dispatches["ended_s"].clip(begin, end) - dispatches["dispatched_s"].clip(
            begin, end
        )
        assert shown["working"][index] == pytest.approx(worked.sum() / (end - begin), abs=1e-9)
    # The finding gives the highest point of the curve beside the most clients at one moment.
    highest = format_count(max(mean for mean in shown["working"] if mean is not None))
    figure = drawn(time.online(run))
    assert figure.finding.endswith(f"averages that the curve shows are at most {highest}.")


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
    figure = drawn(participation.participation(run))
    count = (given > 0).sum()
    some = f"{count} of 30" if count < 30 else "All 30"
    assert figure.finding.startswith(f"{some} clients contributed")
    pairs = np.abs(given.to_numpy()[:, None] - given.to_numpy()).mean()
    assert f"(Gini coefficient {pairs / 2 / given.mean():.2f})" in figure.finding


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


def test_all_clients_and_all_labels_are_stated_as_such(tmp_path: Path) -> None:
    scenario = {
        "task": {
            "dataset": {"name": "digits"},
            "partition": {"name": "iid", "clients": 3},
            "model": {"name": "logistic_regression"},
        },
        "training": {"local_steps": 1},
        "devices": {"compute": {"name": "values", "step": [1, 1, 1]}, "network": LINKS},
        "server": {"selection": {"cohort": 3}},
        "stop": {"rounds": 1},
    }
    run = fedsim.run(scenario, tmp_path / "run")
    figures = participation.participation(run), participation.partition(run)
    assert [figure and figure.finding.split("; ")[0] for figure in figures] == [
        "All 3 clients contributed at least one update",
        "Every client has data of all 10 labels.",
    ]


@pytest.mark.usefixtures("with_reports")
def test_why_clients_did_not_contribute(tmp_path: Path) -> None:
    """Of five devices, one is always away, one is never selected, one is too slow, and one leaves at once."""
    week, minute = [(0, 7 * 86_400 * 10**6)], 60 * 10**6
    bundle = bundle_of(
        {"a": week, "away": [], "idle": week, "slow": week, "gone": [(0, 1), (1, minute // 6)]},
        devices={"kind": ["phone", "phone", "phone", "tv", "tv"]},
    )
    bundle.write(tmp_path / "trace")
    run = fedsim.run(
        {
            "task": {"name": "timing", "clients": 5, "parameters": 1000},
            "training": {"local_steps": 10},
            "devices": {
                "trace": str(tmp_path / "trace"),
                "compute": {"name": "values", "step": [1, 1, 1, 6.5, 2]},
                "network": {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"},
            },
            "server": {
                "selection": {"name": "scripted", "rounds": [[0, 3, 4], [0]]},
                "schedule": {"name": "sync", "deadline": "1min"},
            },
            "stop": {"rounds": 2},
        },
        tmp_path / "run",
    )
    figure = drawn(participation.contribution(run))
    assert [column.key for column in figure.columns] == [
        *("kind", "clients", "contributed", "share", "never online", "never selected"),
        *("mostly dropped (offline)", "mostly late"),
    ]
    assert figure.rows == [
        ("phone", 3, 1, pytest.approx(1 / 3), 1, 1, 0, 0),
        ("tv", 2, 0, 0, 0, 0, 1, 1),
        ("all", 5, 1, 0.2, 1, 1, 1, 1),
    ]
    assert figure.finding == (
        "1 of 5 clients contributed; never online: 1; never selected: 1; mostly dropped (offline): 1; mostly late: 1."
    )
    assert "Who contributed, and how often" in run.report().read_text()


def test_a_run_to_which_all_contributed_has_no_table_of_reasons(tmp_path: Path) -> None:
    world = timing({"compute": STEPS, "network": LINKS})
    assert participation.contribution(fedsim.run(world, tmp_path / "run")) is None


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ([[0, 1]] * 4, "0 at worst, and 0 on average"),
        ([[0, 1], [0], [0], [1]], "2 at worst, and 1 on average"),
    ],
)
def test_the_finding_on_delays_is_about_the_clients_that_are_drawn(
    tmp_path: Path, rounds: list[list[int]], said: str
) -> None:
    scenario = {
        "task": {"name": "timing", "clients": 5, "parameters": 10},
        "devices": {
            "compute": {"name": "values", "step": "1s"},
            "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
        },
        "server": {"selection": {"name": "scripted", "rounds": rounds}},
        "stop": {"rounds": 4},
    }
    figure = drawn(participation.delay(fedsim.run(scenario, tmp_path / "run")))
    assert figure.finding == (
        "The client absent longest had missed 4 updates at worst, and 2.5 on average; among those that contributed at "
        f"all, {said}."
    )
