"""Why a variant was first: recomputed from the tables of real runs, and in words."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.analysis.comparison import Comparison, Target, compare, findings
from fedsim.analysis.comparison.headline import explanations, headline, statement
from fedsim.analysis.comparison.latex import latex
from fedsim.analysis.comparison.page import page_figures, render
from fedsim.cli.compare import command
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import parquet, row
from tests.analysis.comparison.made import of
from tests.analysis.comparison.test_groups import facts
from tests.reports import empty_reports

GOAL = Target("loss", 0.05)
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
    at = metrics[metrics["loss"] <= GOAL.value].iloc[0]
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
    causes = {cause.setting: cause for cause in findings.causes(comparison, GOAL)}
    assert list(causes) == [f"median={median}" for median in MEDIANS]
    for median in MEDIANS:
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
        cause = causes[setting]
        assert (cause.first, cause.second, cause.seeds) == ("fedbuff", "fedavg", 3)
        assert cause.speedup == pytest.approx(slow_s / fast_s, rel=1e-12)
        assert cause.updates_ratio == pytest.approx(fast / slow, rel=1e-12)
        assert cause.rate_ratio == pytest.approx((fast / fast_s) / (slow / slow_s), rel=1e-12)
        assert cause.rate_ratio / cause.updates_ratio == pytest.approx(cause.speedup, rel=1e-12)
        relative = row(comparison.targets, setting, "fedbuff")["relative"]
        assert cause.speedup == pytest.approx(1 / relative, rel=1e-12)
    # The terminal, its JSON document, the page and the LaTeX table.
    sentences = explanations(comparison, GOAL)
    settings = [f" (median={median})" for median in MEDIANS]
    assert all(f"as fedavg{each}: " in text for each, text in zip(settings, sentences, strict=True))
    arguments = [str(raced.path), "-o", str(tmp_path / "out")]
    shown = CliRunner().invoke(command, arguments, env={"COLUMNS": "400"}).output
    assert all(sentence in shown for sentence in sentences)
    document = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    assert [item["sentence"] for item in document["causes"]] == [
        text.replace(each, "") for each, text in zip(settings, sentences, strict=True)
    ]
    assert document["causes"][0]["speedup"] == pytest.approx(causes["median=1s"].speedup)
    (frame,) = (comparison.targets_of(goal) for goal in comparison.goals)
    assert document["targets"][0]["client_updates"] == pytest.approx(
        frame["client_updates"].iloc[0]
    )
    subtitle = render(comparison).split('<p class="subtitle">')[1].split("</p>")[0]
    assert html.unescape(subtitle).replace("\u00a0", " ") == " ".join(sentences)
    figure = page_figures(comparison)["target-0"]
    assert figure.extra["explanations"] == sentences
    columns = {column.key: column.values for column in figure.columns}
    assert list(columns["client_updates"]) == frame["client_updates"].tolist()
    assert list(columns["client_updates_per_h"]) == frame["client_updates_per_h"].tolist()
    assert "client updates & updates per hour" in latex(comparison)


def test_a_reader_of_a_single_setting_gets_one_sentence(raced: Sweep) -> None:
    names = raced.index[raced.index["devices.compute.median"] == "1s"]["run"]
    comparison = compare([raced.path / name for name in names])
    main, qualifiers, (cause,) = statement(comparison)
    assert main.startswith("fedbuff reached a loss of 0.05 first, after ")
    assert qualifiers == ()
    assert cause.startswith("It needed ")
    factor = main.partition(": ")[2].removesuffix(" as fedavg")
    (sentence,) = explanations(comparison, GOAL)
    assert sentence == f"fedbuff was {factor} as fedavg: i{cause[1:]}"
    assert f"{cause}</p>" in render(comparison).replace("\u00a0", " ")


def _made(*, baseline: str | None = None, **variants: list[tuple[float, int]]) -> Comparison:
    """Variants by the time to the target and the client updates up to it, one pair per seed; evaluated every second."""
    runs = []
    for name, seeds in variants.items():
        for seed, (end_s, updates) in enumerate(seeds):
            scenario = {"server": {"method": {"name": name}}}
            run = facts(scenario, seed, f"{name}{seed}", (0.0, end_s - 1, end_s), (0, 0, 1))
            run.progress["client_updates"] = [0, 0, updates]
            runs.append(run)
    return of(*runs, goals=(Target("accuracy", 0.7),), baseline=baseline)


@pytest.mark.parametrize(
    ("end_s", "updates", "number", "rate"),
    [
        (100, 50, "50.0% as many client updates (50 against 100) and", "about as fast (1,800"),
        (50, 50, "50.0% as many client updates (50 against 100) and", "2 times as fast (3,600"),
        (
            50,
            125,
            "1.25 times as many client updates (125 against 100) but",
            "5 times as fast (9,000",
        ),
        (100, 25, "25.0% as many client updates (25 against 100) but", "50.0% as fast (900"),
    ],
)
def test_the_words_fit_the_factors(end_s: float, updates: int, number: str, rate: str) -> None:
    comparison = _made(slow=[(200, 100)] * 3, quick=[(end_s, updates)] * 3)
    assert "".join(statement(comparison).sentences) == (
        f"It needed {number} aggregated them {rate} against 1,800 per hour)."
    )


def test_a_baseline_that_is_first_is_compared_with_the_next_best() -> None:
    comparison = _made(a=[(50, 50)] * 3, b=[(200, 100)] * 3, c=[(100, 100)] * 3)
    assert headline(comparison) == "a reached 70% accuracy first, after 50 s: 2 times as fast as c"
    assert "".join(statement(comparison).sentences).startswith(
        "It needed 50.0% as many client updates (50 against"
    )
    # The factor is relative to the baseline if that is slower.
    other = _made(baseline="b", a=[(50, 50)] * 3, b=[(200, 100)] * 3, c=[(100, 100)] * 3)
    assert headline(other).endswith("4 times as fast as b")


def test_only_seeds_with_which_both_reached_the_target_count() -> None:
    slow = [(100.0, 100), (200.0, 200), (300.0, 60)]
    comparison = _made(slow=[*slow, (400.0, 1000)], quick=[(10.0, 10), (20.0, 20), (30.0, 30)])
    (cause,) = findings.causes(comparison, comparison.goals[0])
    assert (cause.seeds, cause.speedup, cause.updates) == (3, 10, (20, 120))
    assert cause.rates_per_h == (3600, 2160)


def test_no_cause_of_a_lead_that_is_uncertain() -> None:
    goal = Target("accuracy", 0.7)
    clear = _made(a=[(50, 50)] * 3, b=[(60, 50)] * 3)
    assert statement(clear).sentences
    assert clear.targets["client_updates"].tolist() == [50, 50]
    for unclear in (
        _made(a=[(50, 50)] * 2, b=[(60, 50)] * 2),
        _made(a=[(50, 50)] * 3, b=[(50.5, 50)] * 3),
        _made(a=[(50, 50), (54, 50), (70, 50)], b=[(75, 50), (55, 50), (52, 50)]),
        _made(a=[(50, 50)] * 3, b=[(50, 40)] * 3),
        # Clear against the baseline, but not against the next best.
        _made(c=[(90, 50)] * 3, b=[(50.5, 50)] * 3, a=[(50, 50)] * 3),
    ):
        assert statement(unclear).sentences == ()
        assert findings.causes(unclear, goal) == []
        assert explanations(unclear, goal) == []


def test_a_target_that_an_untrained_model_reached_has_no_cause() -> None:
    comparison = _made(a=[(50, 0)] * 3, b=[(100, 10)] * 3)
    assert headline(comparison).endswith("2 times as fast as b")
    assert statement(comparison).sentences == ()


def test_uncertain_leads_are_named_by_setting() -> None:
    runs = []
    for alpha, ends in ((1, (10, 20)), (2, (10, 30))):
        for name, end_s in zip("ab", ends, strict=True):
            scenario = {"server": {"method": {"name": name}}, "task": {"alpha": alpha}}
            runs.append(facts(scenario, 0, f"{name}{alpha}", (0.0, end_s - 1, end_s), (0, 0, 1)))
    goal = Target("accuracy", 0.7)
    comparison = of(*runs, goals=(goal,))
    sentences = explanations(comparison, goal)
    assert sentences == [
        f"a's lead over b (alpha={alpha}) is uncertain: it rests on one seed." for alpha in (1, 2)
    ]
    assert statement(comparison).sentences == tuple(sentences)


def test_client_updates_to_a_target_that_nobody_reached_are_absent(raced: Sweep) -> None:
    comparison = compare(raced.path, targets=["loss=0.0000001"])
    assert comparison.targets["client_updates"].isna().all()
    assert "client updates" not in latex(comparison)
