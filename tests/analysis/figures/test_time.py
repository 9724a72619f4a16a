"""Figures of time and work against independent queries of the Parquet files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.analysis.figures import base, time
from fedsim.analysis.headline import explanation, tiles
from fedsim.analysis.report import render
from fedsim.analysis.run import Run
from fedsim.analysis.statistics import gini, where_time_went
from fedsim.vocabulary.formatting import format_share
from tests.analysis.documents import columns, drawn, embedded, parquet, values_of
from tests.composition.test_closing import simulate
from tests.composition.worlds import quadratic
from tests.runs.synthetic_runs import build_run


def test_time_spent_and_work(run: Run, document: dict[str, Any]) -> None:
    shown, clients = columns(document, "time"), parquet(run, "clients")
    parts = ["download_s", "compute_s", "upload_s", "waiting_s", "idle_s", "offline_s"]
    assert shown["seconds"] == pytest.approx([clients[part].sum() for part in parts])
    assert sum(shown["share"]) == pytest.approx(1.0)
    assert clients["waiting_s"].sum() > 0
    assert time.time_spent(run).finding.startswith(
        "Of the time clients spent on dispatches, including the wait for aggregation, "
    )
    assert sum(share for share in shown["work_share"] if share is not None) == pytest.approx(1.0)
    shown, dispatches = columns(document, "work"), parquet(run, "dispatches")
    for index, label in enumerate(shown["outcome"]):
        rows = dispatches[dispatches["outcome"] == label]
        assert shown["dispatches"][index] == len(rows)
        assert shown["steps"][index] == rows["steps_done"].sum()
        assert shown["bytes"][index] == rows["bytes_down"].sum() + rows["bytes_up"].sum()


def test_outcomes_over_time(run: Run, document: dict[str, Any]) -> None:
    shown, dispatches = columns(document, "outcomes"), parquet(run, "dispatches")
    for label in list(shown)[2:]:
        of_label = dispatches.loc[dispatches["outcome"] == label, "dispatched_s"]
        expected, _ = np.histogram(of_label, [*shown["from_s"], shown["to_s"][-1]])
        assert shown[label] == expected.tolist()
    assert sum(document["outcomes"]["totals"].values()) == len(dispatches)


def test_the_causes_of_drops_are_counted(tmp_path: Path) -> None:
    """Steps of 1, 2 and 400 s at 2 W: 5 J are not enough for the last; then the other two lose their uploads."""
    scenario = three_clients("400s", 3, {"name": "sync"}, {"rounds": 1})
    assert "drops" not in outcomes_of(fedsim.run(scenario, tmp_path / "none"))
    scenario["devices"]["energy"] = {"battery_j": 5, "compute_w": 2, "upload_w": 0}
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.dispatches.set_index("client_id")["cause"].dropna().to_dict() == {2: "battery"}
    assert outcomes_of(run).endswith(" Causes of drops: battery 1.")
    scenario["devices"]["failures"] = {"upload_loss": 1}
    scenario["stop"] = {"simulated_time": "2.8s"}
    lost = fedsim.run(scenario, tmp_path / "lost")
    assert outcomes_of(lost).endswith(" Causes of drops: lost upload 2 and battery 1.")


def outcomes_of(run: Run) -> str:
    figure = drawn(time.outcomes(run))
    return figure.finding


def test_a_single_client_is_named_in_the_singular(tmp_path: Path) -> None:
    scenario = three_clients("400s", 3, {"name": "sync"}, {"simulated_time": "1s"})
    scenario["task"]["clients"], scenario["server"]["selection"]["cohort"] = 1, 1
    scenario["devices"]["compute"]["step"] = ["1s"]
    figure = drawn(time.online(fedsim.run(scenario, tmp_path / "run")))
    assert figure.finding.startswith(
        "1 client was online all the time. At most 1 client was working at"
    )


def test_bars_of_a_run_in_rounds_go_from_round_to_round(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=12, hours=3)
    shown = columns(embedded(render(run)), "outcomes")
    moments = parquet(run, "dispatches")["dispatched_s"].unique()
    assert 10 < len(moments) <= base.MAX_BINS
    assert shown["from_s"] == [0.0, *moments[1:]]
    assert shown["to_s"] == [*moments[1:], 3 * 3600.0]


def test_rounding_is_not_taken_for_time(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=10, hours=1)
    clients = run.clients.assign(idle_s=2.3e-14, offline_s=-1e-13)
    spent = where_time_went(run.phases, clients)
    assert (spent["idle"], spent["offline"]) == (0.0, 0.0)
    assert spent["compute"] > 0
    assert f"{gini(np.full(10, 76)):.2f}" == "0.00"


def test_work_without_a_loss(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=10, hours=1)
    assert "went into updates that were never aggregated." in time.work(run).finding
    run.dispatches = run.dispatches[run.dispatches["outcome"] == "aggregated"]
    assert time.work(run).finding == "No work was lost."


def three_clients(
    slowest: str, cohort: int, schedule: dict[str, Any], stop: dict[str, Any]
) -> dict[str, Any]:
    """Rounds of one local step, which takes 1 s, 2 s, or as long as that of the slowest client."""
    return {
        "task": {"name": "timing", "clients": 3, "parameters": 1},
        "training": {"local_steps": 1},
        "devices": {
            "compute": {"name": "values", "step": ["1s", "2s", slowest]},
            "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
        },
        "server": {"selection": {"name": "uniform", "cohort": cohort}, "schedule": schedule},
        "stop": stop,
    }


def test_late_updates_of_over_selection_are_told_from_those_after_the_deadline(
    tmp_path: Path,
) -> None:
    """Three clients that take 1, 2 and 400 s for one update: the second is spare, the third misses the 10 s."""
    schedule = {"name": "sync", "deadline": "10s", "over_selection": 3, "pause": "500s"}
    scenario = three_clients("400s", 1, schedule, {"simulated_time": "450s"})
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.has_rounds  # Updates that are not used do not count.
    for deadline in (10.0, "10s"):  # A user's own schedule may have text.
        run.scenario["server"]["schedule"]["deadline"] = deadline
        assert time.work(run).finding.endswith(
            "1 of 2 late updates arrived before the deadline, in rounds that over-selection had filled earlier."
        )
    # Two of three clients are aggregated, so only the one after the deadline is late.
    two = three_clients("400s", 2, {**schedule, "over_selection": 1.5}, {"simulated_time": "450s"})
    assert time.work(fedsim.run(two, tmp_path / "two")).finding.endswith("never aggregated.")
    scenario["server"]["schedule"] |= {"over_selection": 1}
    scenario["server"]["selection"]["cohort"] = 3
    assert time.work(fedsim.run(scenario, tmp_path / "all")).finding.endswith("never aggregated.")


def test_rounds_that_last_until_their_deadline_are_counted(tmp_path: Path) -> None:
    """Steps of 1, 2 and 20 s, two clients per round, 10 s: a round lasts so long if the third client is drawn."""
    schedule = {"name": "sync", "deadline": "10s", "pause": "60s"}
    scenario = three_clients("20s", 2, schedule, {"rounds": 40})
    run = fedsim.run(scenario, tmp_path / "run")
    slow = run.dispatches.groupby("round")["client_id"].max().eq(2).mean()
    assert 0.4 < slow < 0.9
    assert (
        f"{format_share(slow)} of the rounds lasted until their deadline."
        in time.time_spent(run).finding
    )
    scenario["server"]["schedule"] |= {"deadline": None}
    assert "deadline" not in time.time_spent(fedsim.run(scenario, tmp_path / "none")).finding


def test_clients_that_were_never_online_and_default_watts_are_named(tmp_path: Path) -> None:
    run = fedsim.run("quickstart", tmp_path / "run", overrides=["stop={rounds: 1}"])
    notes = {tile.label: tile.note for tile in tiles(run)}
    away = (run.clients["online_fraction"] == 0).sum()
    assert away > 0
    assert notes["Clients that contributed"].endswith(f"of 200; {away} never online")
    assert notes["Energy of the devices"].endswith(" Wh; default watts")
    run.scenario["devices"]["energy"]["compute_w"] = 3
    assert {tile.label: tile.note for tile in tiles(run)}["Energy of the devices"].endswith(" Wh")


def test_waiting_is_split_by_cause(tmp_path: Path) -> None:
    run = simulate(tmp_path, "drop", [(0, 60)])
    figure = drawn(time.waiting(run))
    assert run.critical is not None
    shown = values_of(figure)
    assert sum(shown["seconds"]) == pytest.approx(run.aggregations["time_s"].iloc[-1])
    assert sum(shown["share"]) == pytest.approx(1)
    spent = (run.critical["to_s"] - run.critical["from_s"])[
        run.critical["cause"] == "compute"
    ].sum()
    (change,) = [each for each in figure.extra["changes"] if each["change"].startswith("devices")]
    assert change["share"] == pytest.approx(spent / sum(shown["seconds"]) / 2)
    assert f"devices twice as fast: about −{100 * change['share']:.0f}%" in render(run)


def test_waiting_until_the_target_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """Rounds of 1 + 3 + 1 s; the distance halves per round, and the run makes twice as many as the target needs."""
    run = fedsim.run(
        {
            "name": "goes-on",
            "task": {"name": "quadratic", "centers": [1.0, 2.0, 3.0]},
            "training": {"local_steps": 1, "dtype": "float64", "device": "cpu"},
            "devices": {
                "compute": {"name": "values", "step": [1.0, 3.0, 0.5]},
                "network": {"name": "static", "latency": "0s", "down": "64bps", "up": "64bps"},
            },
            "stop": {"rounds": 20},
            "evaluation": {"every_rounds": 1},
        },
        tmp_path / "run",
    )
    distances = run.metrics["distance"]
    run.scenario["stop"]["target"] = {"distance": float(distances.iloc[10])}
    figure = drawn(time.waiting(run))
    shown = values_of(figure)
    assert sum(shown["seconds"]) == run.time_to("distance", distances.iloc[10])
    assert sum(shown["seconds_1"]) == run.aggregations["time_s"].iloc[-1] == 100
    assert shown["share"] == shown["share_1"] == [0.2, 0.6, 0.2]
    assert "time to the target, if as many server updates are needed" in explanation(run, figure)[1]
    assert [bar["label"].startswith("Simulated time until") for bar in figure.extra["bars"]] == [
        True
    ] * 2


def test_pauses_are_neither_work_nor_offline_time(tmp_path: Path) -> None:
    """Online for the first 3 of every 10 s, at work for all of them until the run ends at 28 s."""
    run = simulate(tmp_path, "pause", [(at, at + 3.0) for at in range(0, 200, 10)], until=28)
    figure = time.time_spent(run)
    shown = values_of(figure)
    assert shown["part"][3] == "paused while offline"
    assert shown["seconds"] == pytest.approx([1, 8, 0, 19, 0, 0, 0])
    assert figure.extra["parts"][3] == "paused"
    assert len(figure.extra["work_parts"]) == 5
    assert figure.finding.startswith("Of the time clients spent on dispatches, 67.9% was paused")
    assert "paused clients were offline in the middle of a dispatch" in render(run)
    work = {column.key: list(column.values) for column in time.work(run).columns}
    assert sum(work["seconds"]) == pytest.approx(9)
    online = drawn(time.online(run))
    columns_ = {column.key: np.array(column.values) for column in online.columns}
    steps = np.diff(columns_["time_s"])
    assert (columns_["working"][:-1] * steps).sum() == pytest.approx(9)
    assert (columns_["working"][:-1] <= 1 + 1e-9).all()


def test_a_run_without_pauses_does_not_mention_them(tmp_path: Path) -> None:
    run = simulate(tmp_path, "drop", [(0, 4), (30, 60)])
    assert "paused" not in time.time_spent(run).extra["parts"]
    assert "paused clients were" not in render(run)


def test_durations_are_those_of_the_files(run: Run, document: dict[str, Any]) -> None:
    shown = columns(document, "durations")
    dispatches, aggregations = parquet(run, "dispatches"), parquet(run, "aggregations")
    expected = {
        "between server updates": aggregations["time_s"].diff().fillna(aggregations["time_s"]),
        "dispatch to arrival": (dispatches["arrived_s"] - dispatches["dispatched_s"]).dropna(),
    }
    for name, seconds in expected.items():
        shares = [(seconds <= limit).mean() for limit in shown["at_most_s"]]
        assert shown[name] == pytest.approx(shares)
        assert shares[-1] == 1.0 or name == "between server updates"


def test_a_run_without_arrivals_has_no_durations(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=0, hours=1)
    assert time.durations(run) is None


def test_bytes_by_vector(tmp_path: Path) -> None:
    content = quadratic([[0, 1], [1, 2], [0, 1, 2]])
    content["server"] |= {
        "method": "scaffold",
        "compression": {
            "up": {"name": "cast", "vectors": ["delta"]},
            "down": {"name": "factor", "factor": 0.5},
        },
    }
    run = fedsim.run(content, tmp_path / "factor")
    figure = drawn(time.vectors(run))
    # One number of 8 bytes per vector, 7 dispatches.
    assert figure.rows == [
        ("down", "model", "factor", 8, 4, 0.5, 28),
        ("down", "control", "factor", 8, 4, 0.5, 28),
        ("up", "delta", "cast", 8, 2, 0.25, 14),
        ("up", "control", "none", 8, 8, 1, 56),
    ]
    assert figure.finding == (
        "A compressed download has 8 B, 50.0% of its size without compression and an upload has 10 B, 62.5% of its "
        "size without compression."
    )
    assert sum(row[-1] for row in figure.rows[2:]) == run.dispatches["bytes_up"].sum()


def test_first_downloads_are_complete(tmp_path: Path) -> None:
    content = quadratic([[0, 1], [1, 2], [0, 1, 2]])
    content["server"] |= {"compression": {"down": "cast"}}
    run = fedsim.run(content, tmp_path / "cast")
    figure = drawn(time.vectors(run))
    # Three of seven dispatches are a client's first.
    assert figure.rows[0] == ("down", "model", "cast", 8, 2, 0.25, 3 * 8 + 4 * 2)
    assert figure.rows[0][-1] == run.dispatches["bytes_down"].sum()


def test_without_compression_there_is_no_figure(tmp_path: Path) -> None:
    assert time.vectors(fedsim.run(quadratic([[0]]), tmp_path / "run")) is None
