"""Who was first, by how much, how certainly and why: on times made by hand, and recomputed from tables of real runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.analysis.comparison import Target, compare
from fedsim.analysis.comparison.findings import ahead, leads
from fedsim.analysis.comparison.headline import reason
from fedsim.analysis.comparison.latex import latex
from fedsim.cli.compare import command
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import parquet, row
from tests.analysis.comparison.made import GOAL, of, racers, run
from tests.reports import empty_reports

CLEAR: dict[str, Any] = {"a": (50, 54, 59), "b": (60, 64, 75)}


@pytest.mark.parametrize(
    ("ends", "first", "second", "doubt"),
    [
        (CLEAR, "a", "b", ""),
        # The partner is the baseline, which is the first variant.
        ({"c": (90, 91, 92), **CLEAR}, "a", "c", ""),
        ({"a": (50, 54, 70), "b": (75, 55, 52)}, "a", "b", "over b is uncertain: the ranges of their times overlap"),
        ({"c": (90, 91, 92), "b": (75, 55, 52), "a": (50, 54, 70)}, "a", "c", "over b is uncertain"),
        ({"c": (52, 53, 100), "b": (60, 64, 75), "a": (50, 54, 59)}, "a", "c", "over c is uncertain"),
        # With up to five seeds, ranges must not overlap; with six, the interval of the differences decides.
        ({"a": (50, 54, 70), "b": (60, 64, 75)}, "a", "b", "the ranges of their times overlap"),
        ({"a": (50, 54, 70) * 2, "b": (60, 64, 75) * 2}, "a", "b", ""),
        ({"a": (50, 54, 70) * 2, "b": (75, 55, 52) * 2}, "a", "b", "the lead is within the spread over seeds"),
        ({"every_s": 15, **CLEAR}, "a", "b", "shorter than the time between evaluations"),
        ({"a": (50, 51), "b": (75, 52)}, "a", "b", "fewer than 3 common seeds"),
        ({"a": (58,), "b": (63,)}, "a", "b", "fewer than 3 common seeds"),
        ({"a": (10, None), "b": (None, 30)}, "a", "b", "fewer than 3 common seeds"),
        # A variant is not first because its slow runs missed the target.
        ({"a": (490, 520, None), "b": (490, 520, 550)}, "a b", "", ""),
        ({"a": (490, 520, None), "b": (490, 520, 550), "c": (520, 490, 550)}, "a b c", "", ""),
        ({"a": (490, 520, None), "b": (490, 520, 550), "c": (500, 530, 540)}, "a b", "c", "over c"),
        ({"a": (10, 40, None, None), "b": (5, 8, 100, 200)}, "b", "a", "fewer than 3 common seeds"),
        # a beats b with seed 0, b beats c with seed 1, c beats a with seed 2: the shortest mean decides.
        ({"a": (100, None, 300), "b": (101, 200, None), "c": (None, 201, 210)}, "b", "a", "a was faster"),
        # c beats b with seed 2.
        (
            {
                "a": (10, 10, None, 10, 10, 10),
                "b": (10, 10, 20, None, None, None),
                "c": (None, None, 12, 14, 14, 15),
            },
            "a",
            "b",
            "over b is uncertain: b was equally fast on the seeds with which both reached it",
        ),
    ],
)  # fmt: skip
def test_the_first_variant_and_what_doubts_its_lead(
    ends: dict[str, Any], first: str, second: str, doubt: str
) -> None:
    (lead,) = leads(of(*racers(**ends), goals=(GOAL,)), GOAL)
    assert lead.tied == first.split()
    assert lead.second == second
    said = [f"over {rival} is uncertain: {reason}" for rival, reason in lead.doubts.items()]
    assert doubt in "".join(said[:1])
    assert bool(lead.doubts) == bool(doubt)
    assert lead.has_cause == (not doubt and len(lead.tied) == 1)


def test_a_baseline_that_is_first_is_compared_with_the_next_best() -> None:
    runs = racers(a=(50,) * 3, b=(200,) * 3, c=(100,) * 3, updates=(50, 100, 125))
    assert leads(of(*runs, goals=(GOAL,)), GOAL)[0].second == "c"
    (lead,) = leads(of(*runs, goals=(GOAL,), baseline="b"), GOAL)
    assert (lead.second, lead.speedup, lead.updates_ratio, lead.rate_ratio) == ("b", 4, 0.5, 2)
    assert lead.client_updates_per_h == [3600, 1800]


def test_a_target_that_an_untrained_model_reached_has_no_cause() -> None:
    (lead,) = leads(of(*racers(a=(50,) * 3, b=(100,) * 3, updates=(0, 10)), goals=(GOAL,)), GOAL)
    assert lead.speedup == 2
    assert not lead.has_cause


def test_runs_that_had_stopped_at_their_own_target_have_no_lead() -> None:
    stop: dict[str, Any] = {"stop": {"target": {"accuracy": 0.7}}}
    stopped = run("a", accuracy=(0.1, 0.5, 0.7), **stop)
    # A run that ended otherwise had its chance.
    missed = run("a", accuracy=(0.1, 0.5, 0.6), **stop)
    other = run("b", accuracy=(0.1, 0.6, 0.9), **stop)
    assert leads(of(stopped, other, goals=(GOAL,)), GOAL) == []
    assert [lead.first for lead in leads(of(missed, other, goals=(GOAL,)), GOAL)] == ["b"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({(1, "a"): [0.5], (1, "b"): [0.9]}, "90.0% with b"),
        # Equal to the last digit that is shown.
        ({(1, "a"): [0.9], (1, "b"): [0.90001], (1, "c"): [0.5]}, "90.0% with a and b"),
        ({(1, "a"): [0.9], (1, "b"): [0.90001]}, "90.0% with all variants"),
        ({(1, "a"): [0.9], (1, "b"): [0.5], (2, "a"): [0.1], (2, "b"): [0.2]}, "a and b in 1 of 2 settings"),
        ({(1, "a"): [0.9], (1, "b"): [0.5], (2, "a"): [0.2], (2, "b"): [0.2]}, "a in 2 of 2 settings"),
        ({(1, "a"): [float("nan")], (1, "b"): [float("inf")]}, "none"),
        # Ranges that overlap, and that do not.
        ({(1, "a"): [0.8, 0.9], (1, "b"): [0.7, 0.82], (1, "c"): [0.7, 0.75]}, "no clear winner between a and b"),
        ({(1, "a"): [0.8, 0.9], (1, "b"): [0.7, 0.75]}, "85.0% with a"),
        ({(1, "a"): [0.8, 0.9], (1, "b"): [0.7, 0.82], (2, "a"): [0.8], (2, "b"): [0.7]}, "a in 1 of 2 settings"),
        ({(1, "a"): [0.8, 0.9], (1, "b"): [0.86], (2, "a"): [0.8, 0.8], (2, "b"): [0.7, 0.8]},
         "no clear winner in any of 2 settings"),
        # With six seeds, intervals decide.
        ({(1, "a"): [0.8, *[0.9] * 7], (1, "b"): [0.82, *[0.7] * 7]}, "88.8% with a"),
    ],
)  # fmt: skip
def test_who_is_ahead(ends: dict[tuple[int, str], list[float]], expected: str) -> None:
    rows = [
        {"setting": str(alpha), "label": name, "value": end}
        for (alpha, name), every in ends.items()
        for end in every
    ]
    assert ahead(pd.DataFrame(rows), "{:.1%}".format) == expected


MEDIANS = ("1s", "2s")
SCENARIO: dict[str, Any] = {
    "task": {"name": "quadratic", "centers": [[0.1], [-0.1]] * 4, "initial": 1.0},
    "training": {"optimizer": {"lr": 0.05}, "local_steps": 2, "dtype": "float64"},
    "devices": {
        "compute": {"name": "lognormal", "median": "1s", "sigma": 1.0, "jitter": {"cv": 0.2}},
        "network": {"name": "static", "latency": "40ms", "down": "1Gbps", "up": "1Gbps"},
    },
    "server": {"selection": {"cohort": 6}},
    "stop": {"target": {"loss": 0.05}, "simulated_time": "20min"},
    "evaluation": {"every": "1s"},
    "sweep": {
        "grid": {
            "devices.compute.median": list(MEDIANS),
            "server.method": [{"name": "fedavg"}, {"name": "fedbuff"}],
        },
        "seeds": [0, 1, 2],
    },
}


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    with empty_reports():
        sweep = fedsim.sweep(SCENARIO, tmp_path_factory.mktemp("raced") / "sweep", jobs=1)
    assert sweep.failures == {}
    return sweep


def _of_run(folder: Path) -> tuple[float, int]:
    """Time to the target and client updates up to it, from the tables alone, in two ways."""
    metrics, made, dispatches = (
        parquet(folder, name) for name in ("metrics", "aggregations", "dispatches")
    )
    at = metrics[metrics["loss"] <= 0.05].iloc[0]
    updates = 0
    for aggregation in made.itertuples():
        if aggregation.version <= at["version"]:
            several = aggregation.multiplicities
            updates += aggregation.contributors if several is None else int(sum(several))
    assert updates == (dispatches["aggregated_version"] <= at["version"]).sum()
    return float(at["time_s"]), updates


def _of_group(sweep: Sweep, median: str, method: str) -> Any:
    index = sweep.index
    rows = index[
        (index["devices.compute.median"] == median)
        & index["server.method"].str.contains(f'"{method}"')
    ]
    return np.array([_of_run(sweep.path / name) for name in rows.sort_values("seed")["run"]]).T


def test_the_factors_of_real_runs_are_those_of_their_tables(raced: Sweep, tmp_path: Path) -> None:
    comparison = compare(raced.path)
    every = leads(comparison, Target("loss", 0.05))
    for lead, median in zip(every, MEDIANS, strict=True):
        setting = f"median={median}"
        means = {}
        for method in ("fedavg", "fedbuff"):
            time_s, updates = _of_group(raced, median, method).mean(axis=1)
            means[method] = time_s, updates
            shown = row(comparison.targets, setting, method)
            assert shown["time_s"] == pytest.approx(time_s)
            assert shown["client_updates"] == pytest.approx(updates)
            assert shown["client_updates_per_h"] == pytest.approx(3600 * updates / time_s)
        (slow_s, slow), (fast_s, fast) = means["fedavg"], means["fedbuff"]
        names = setting, "fedbuff", "fedavg", 3
        assert (lead.setting, lead.first, lead.second, lead.seeds) == names
        assert lead.speedup == pytest.approx(slow_s / fast_s, rel=1e-12)
        assert lead.updates_ratio == pytest.approx(fast / slow, rel=1e-12)
        assert lead.rate_ratio == pytest.approx((fast / fast_s) / (slow / slow_s), rel=1e-12)
        assert lead.rate_ratio / lead.updates_ratio == pytest.approx(lead.speedup, rel=1e-12)
        relative = row(comparison.targets, setting, "fedbuff")["relative"]
        assert lead.speedup == pytest.approx(1 / relative, rel=1e-12)
    # The terminal's JSON document.
    sentences = [reason(comparison, lead) for lead in every]
    arguments = [str(raced.path), "-o", str(tmp_path / "out"), "--json"]
    document = json.loads(CliRunner().invoke(command, arguments).stdout)
    assert [item["sentence"] for item in document["causes"]] == sentences
    assert document["causes"][0]["speedup"] == pytest.approx(every[0].speedup)


def test_client_updates_to_a_target_that_nobody_reached_are_absent(raced: Sweep) -> None:
    comparison = compare(raced.path, targets=["loss=0.0000001"])
    assert comparison.targets["client_updates"].isna().all()
    assert "client updates" not in latex(comparison)


def test_variants_that_no_evaluation_tells_apart_tie(tmp_path: Path) -> None:
    """x is worked out by hand: after 10 s and 10 steps 0.9^10 and 0.89^10; 0.98^40 after 40 s; loss x^2 / 2."""

    def trained(lr: float) -> fedsim.Run:
        scenario = {
            "task": {"name": "quadratic", "centers": [0.0], "initial": 1.0},
            "training": {"optimizer": {"lr": lr}, "local_steps": 2, "dtype": "float64"},
            "devices": {
                "compute": {"name": "values", "step": 1},
                "network": {"name": "static", "latency": 0, "down": 1e18, "up": 1e18},
            },
            "stop": {"simulated_time": 60},
            "evaluation": {"every": 10},
        }
        return fedsim.run(scenario, tmp_path / f"{lr:g}")

    comparison = compare([trained(lr) for lr in (0.02, 0.1, 0.11)], targets=["loss=0.1"])
    slow, *quick = (group.label for group in comparison.groups)
    (lead,) = leads(comparison, Target("loss", 0.1))
    assert (lead.tied, lead.second, lead.speedup) == (quick, slow, 4)
