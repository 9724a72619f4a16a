"""The critical path: cases on paper, and that it always covers the time exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.runs.critical import CAUSES, critical_path, saving, waiting_by_cause
from tests.traces.cases import bundle_of


def scenario(step_s: list[float], *, rounds: int = 3, **server: Any) -> dict[str, Any]:
    """Dispatches of two steps; 1 s down and 1 s up."""
    return {
        "name": "critical",
        "task": {"name": "quadratic", "centers": [float(i) for i in range(len(step_s))]},
        "training": {"local_steps": 2, "dtype": "float64", "device": "cpu"},
        "devices": {
            "compute": {"name": "values", "step": step_s},
            "network": {"name": "static", "latency": "0s", "down": "64bps", "up": "64bps"},
        },
        "server": {"method": {"name": "fedavg"}, **server},
        "stop": {"rounds": rounds},
        "evaluation": {"every_rounds": 1},
    }


def path(tmp_path: Path, content: dict[str, Any]) -> list[tuple[float, float, str, int]]:
    run = fedsim.run(content, tmp_path / "run", timing_only=True)
    table = critical_path(run)
    return [tuple(row) for row in table.drop(columns="dispatch_id").itertuples(index=False)]


def test_a_synchronous_round_waits_for_its_slowest_client(tmp_path: Path) -> None:
    rounds = scenario([1.0, 3.0], rounds=2, aggregation_time="2s")
    # 1 + 6 + 1 s of client 1, 2 s of aggregation, and the same again.
    assert path(tmp_path, rounds) == [
        (0, 1, "download", 1),
        (1, 7, "compute", 1),
        (7, 8, "upload", 1),
        (8, 10, "aggregation", -1),
        (10, 11, "download", 1),
        (11, 17, "compute", 1),
        (17, 18, "upload", 1),
    ]


def test_a_deadline(tmp_path: Path) -> None:
    schedule = {"name": "sync", "deadline": "5s", "pause": "3s"}
    rounds = scenario([1.0, 30.0], rounds=2, schedule=schedule)
    # Client 0 is back at 4, but the round waits for client 1 until 5. Client 1 is still busy in the next round.
    assert path(tmp_path, rounds) == [
        (0, 5, "deadline", -1),
        (5, 8, "pause", -1),
        (8, 9, "download", 0),
        (9, 11, "compute", 0),
        (11, 12, "upload", 0),
    ]


def test_a_round_without_dispatches_waits_for_its_deadline(tmp_path: Path) -> None:
    schedule = {"name": "sync", "min_updates": 0, "deadline": "5s", "pause": "3s"}
    selection = {"name": "scripted", "rounds": [[0], [], []]}
    rounds = scenario([1.0], rounds=4, schedule=schedule, selection=selection, aggregation_time=1)
    work = [(0, 1, "download", 0), (1, 3, "compute", 0), (3, 4, "upload", 0)]
    between = [(0, 1, "aggregation", -1), (1, 3, "pause", -1)]
    empty = [*between, (3, 8, "deadline", -1)]
    expected = [*moved(work, 0), *moved(empty, 4), *moved(empty, 12), *moved(between, 20)]
    assert path(tmp_path, rounds) == [*expected, *moved(work, 23)]
    # It ends with one.
    assert path(tmp_path / "shorter", rounds | {"stop": {"rounds": 3}}) == expected[:-2]
    # With half of it, empty rounds are 2.5 s shorter, and those with work at most 1.5 s.
    for deadline in (5.0, "5s"):  # A user's own schedule may have text.
        run = fedsim.load(tmp_path / "run")
        run.scenario["server"]["schedule"]["deadline"] = deadline
        assert saving(run, critical_path(run), ["deadline"]).share == pytest.approx(8 / 27)


def moved(rows: list[Any], by_s: float) -> list[Any]:
    return [(from_s + by_s, to_s + by_s, *rest) for from_s, to_s, *rest in rows]


def test_rounds_of_the_cloud_while_all_edge_servers_are_busy(tmp_path: Path) -> None:
    schedule = {"name": "sync", "min_updates": 0, "deadline": "5s"}
    edges = {"count": 2, "network": {"name": "static", "up": "64bps", "down": "64bps"}}
    rounds = scenario([10.0] * 4, rounds=6, schedule=schedule, edges=edges)
    assert path(tmp_path, rounds) == [(0, 30, "deadline", -1)]


def test_a_round_without_updates_is_time_of_its_deadline(tmp_path: Path) -> None:
    schedule = {"name": "sync", "deadline": "5s", "stragglers": "cut", "pause": "3s"}
    rounds = scenario([4.0], rounds=2, schedule=schedule, partial_work="drop")
    rounds["devices"]["compute"] = {
        "name": "values",
        "step": 4.0,
        "jitter": {"name": "lognormal", "cv": 2.0},
    }
    rounds["stop"] = {"rounds": 40}
    run = fedsim.run(rounds, tmp_path / "run", timing_only=True)
    table = critical_path(run)
    # Of the one client, a round is either cut, at 5 s, or a dispatch with its three phases; 3 s before the next.
    assert set(run.dispatches["outcome"]) == {"aggregated", "cut"}
    version = int(run.aggregations["version"].iloc[-1])
    before = run.dispatches[run.dispatches["version"] < version]
    spent = (table["to_s"] - table["from_s"]).groupby(table["cause"]).sum()
    failed = before[before["outcome"] == "cut"]
    assert spent["deadline"] == pytest.approx(8 * len(failed))
    assert spent["pause"] == pytest.approx(3 * (version - 1))


def test_asynchronous_versions_follow_the_slots(tmp_path: Path) -> None:
    schedule = {"name": "buffered", "buffer_size": 3, "concurrency": 2}
    method = {"name": "fedbuff"}
    buffered = scenario([1.0, 1.0], rounds=1, schedule=schedule, method=method)
    # Two updates at 4, and the third one at 8, by the client that was free at 4.
    rows = path(tmp_path, buffered)
    assert [row[:3] for row in rows] == [
        (0, 1, "download"),
        (1, 3, "compute"),
        (3, 4, "upload"),
        (4, 5, "download"),
        (5, 7, "compute"),
        (7, 8, "upload"),
    ]


SCHEDULES: list[dict[str, Any]] = [
    {"schedule": {"name": "sync", "deadline": "15min", "pause": "30s"}},
    {"schedule": {"name": "sync"}, "selection": {"name": "uniform", "cohort": 5}},
    {
        "schedule": {"name": "sync", "min_updates": 0, "deadline": "15min", "pause": "30s"},
        "selection": {"name": "bernoulli", "probability": 0.05, "allow_empty": True},
    },
    {"schedule": {"name": "async", "concurrency": 6}, "method": {"name": "fedasync"}},
    {"schedule": {"name": "buffered", "buffer_size": 4, "concurrency": 9}, "method": "fedbuff"},
    {"method": "rennala"},
    {"method": "mindflayer"},
    {"method": "fedcompass"},
    {"schedule": {"name": "tiered", "tiers": 3}, "method": "fedat"},
]


@pytest.mark.parametrize("on_disconnect", ["drop", "pause"])
@pytest.mark.parametrize("server", SCHEDULES)
def test_the_path_covers_the_time_exactly(
    server: dict[str, Any], on_disconnect: str, tmp_path: Path
) -> None:
    content = {
        "name": "covers",
        "task": {"name": "quadratic", "centers": [float(i) for i in range(20)]},
        "devices": {
            "trace": "builtin:phones_week",
            "availability": {"name": "trace", "on_disconnect": on_disconnect},
            "failures": {"crash_rate": 0.5},
        },
        "training": {"local_steps": 20},
        "server": {"failure_detection": "60s", "aggregation_time": "5s", **server},
        "stop": {"rounds": 12, "simulated_time": "4d"},
    }
    run = fedsim.run(content, tmp_path / "run", timing_only=True)
    versions = len(run.aggregations)
    assert versions > 2
    for version in {1, versions // 2, versions}:
        table = critical_path(run, version)
        assert set(table["cause"]) <= set(CAUSES)
        bounds = np.r_[table["from_s"].to_numpy(), table["to_s"].iloc[-1]]
        assert bounds[0] == 0
        assert bounds[-1] == run.aggregations["time_s"][version - 1]
        np.testing.assert_array_equal(bounds[1:-1], table["to_s"].to_numpy()[:-1])
        assert (np.diff(bounds) > 0).all()
        # A part of a dispatch lies within it, and its time at work is that of the dispatch.
        work = table[table["dispatch_id"] >= 0]
        rows = run.dispatches.iloc[work["dispatch_id"]]
        assert (work["from_s"].to_numpy() >= rows["dispatched_s"].to_numpy()).all()
        assert (work["to_s"].to_numpy() <= rows["ended_s"].to_numpy()).all()
        assert waiting_by_cause(table).sum() == pytest.approx(bounds[-1], abs=1e-6)
        for phase in ("download", "compute", "upload"):
            spent = (work["to_s"] - work["from_s"])[work["cause"] == phase]
            by_dispatch = spent.groupby(work["dispatch_id"]).sum()
            expected = run.phases[f"{phase}_s"].iloc[by_dispatch.index].to_numpy()
            np.testing.assert_allclose(by_dispatch, expected, atol=1e-6)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_a_change_saves_if_nothing_ends_in_half_of_the_time(tmp_path: Path) -> None:
    """A buffer of both clients, who return at 1 + 8 + 1 s; halved work takes 4 s less."""
    schedule = {"name": "buffered", "buffer_size": 2}
    content = scenario([4.0, 4.0], rounds=1, method="fedbuff", schedule=schedule)
    run = fedsim.run(content, tmp_path / "run", timing_only=True)
    assert saving(run, critical_path(run), ["compute"]).share == pytest.approx(0.4)


@pytest.mark.parametrize(("stragglers", "saved_s"), [("run", 8), ("cut", 6)])
def test_over_selection_ends_a_round_at_its_second_arrival(
    stragglers: str, saved_s: float, tmp_path: Path
) -> None:
    """Three clients arrive at 4, 11 and 12 s; with halved work at 3, 10 and 7 s, so the round lasts 7 s, not 11 s.

    If the third is cut at 11 s, after 10 s of work, it arrives at 6 s or later: the round lasts 6 to 10 s.
    """
    schedule = {"name": "sync", "over_selection": 1.5, "pause": "10s", "stragglers": stragglers}
    selection = {"name": "uniform", "cohort": 2}
    content = scenario([1.0, 1.0, 5.0], schedule=schedule, selection=selection)
    rates = {
        "device_id": [*"abcabc"],
        "direction": ["down"] * 3 + ["up"] * 3,
        "bandwidth_bps": [64.0, 64.0, 64.0, 64.0, 8.0, 64.0],  # of 64 bits
    }
    bundle_of(dict.fromkeys("abc", ()), tables={"network": rates}).write(tmp_path / "trace")
    content["devices"] |= {"trace": str(tmp_path / "trace"), "assign": "in_order"}
    content["devices"]["availability"] = "always"
    content["devices"]["network"] |= {"up": "bundle", "down": "bundle"}
    run = fedsim.run(content, tmp_path / "run", timing_only=True)
    table = critical_path(run, 2)
    assert table["to_s"].iloc[-1] == 11 + 10 + 11
    saved = saving(run, table, ["compute"])
    assert saved.share * 32 == pytest.approx(saved_s)
    assert abs(saved.share * 32 - 8) <= saved.error * 32
    assert saved.error > 0
    assert not saved.is_bound
    # A change that leaves the work alone does not alter who is in time.
    assert saving(run, table, ["pause"]) == (pytest.approx(5 / 32), 0, False)
    fedsim.what_if(run, {"devices.compute.step": "0.5x"})
    assert fedsim.load(tmp_path / "run-what-if").aggregations["time_s"][1] == 7 + 10 + 7
