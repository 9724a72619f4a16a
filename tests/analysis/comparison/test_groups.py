"""Names of groups, and the statistics of targets, on numbers made by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsim.analysis.comparison.curves import curve, grid
from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.groups import Grouping, group_runs
from fedsim.analysis.comparison.targets import (
    Target,
    enough,
    mean_difference,
    mean_of_reached,
    median_of_reached,
    ratio_of_means,
    reaching,
)

NAN = math.nan


def facts(
    scenario: dict[str, Any],
    seed: int = 0,
    folder: str = "run",
    times: tuple[float, ...] = (),
    accuracy: tuple[float, ...] = (),
) -> RunFacts:
    progress = pd.DataFrame({"time_s": times, "accuracy": accuracy})
    for name in ("version", "round", "bytes", "compute_s"):
        progress[name] = progress["time_s"] * 2
    return RunFacts(
        path=Path("/runs") / folder,
        scenario={"name": folder, "seed": seed, **scenario},
        replicate=(seed, seed),
        progress=progress,
        metrics=("accuracy",) if accuracy else (),
        figures={},
        spent_s={},
        client_accuracy=np.zeros(0),
        lorenz=np.zeros(0),
        digest=folder,
    )


def server(method: str, **more: Any) -> dict[str, Any]:
    return {"server": {"method": {"name": method, **more}}}


def names(grouping: Grouping) -> list[tuple[str, str, int]]:
    return [(group.setting, group.label, len(group.runs)) for group in grouping.groups]


def test_runs_that_differ_in_seed_and_name_alone_are_one_group() -> None:
    runs = [facts(server("fedavg"), seed, f"run{seed}") for seed in (2, 0, 1)]
    grouping = group_runs(runs)
    assert names(grouping) == [("", "fedavg", 3)]
    assert [run.seed for run in grouping.groups[0].runs] == [0, 1, 2]
    assert grouping.differing == ()


@pytest.mark.parametrize(
    ("scenarios", "expected"),
    [
        ([server("fedavg"), server("fedprox", mu=0.1)], ["fedavg", "fedprox"]),
        (
            [server("fedavg"), server("fedprox", mu=0.1), server("fedprox", mu=1.0)],
            ["fedavg", "fedprox, mu=0.1", "fedprox, mu=1"],
        ),
        (
            [server("fedavg", deadline=None), server("fedavg", deadline=60.0)],
            ["deadline=none", "deadline=60"],
        ),
        (
            [{"training": {"optimizer": {"name": "sgd", "lr": lr}}} for lr in (0.1, 0.01)],
            ["lr=0.1", "lr=0.01"],
        ),
        (
            [{"devices": {"trace": f"/data/{name}"}} for name in ("phones", "labs")],
            ["trace=phones", "trace=labs"],
        ),
        ([server("my.py:First"), server("my.py:Second")], ["First", "Second"]),
        (
            [server("fedavg", deadline=None), server("fedavg", deadline=8.0), server("mifa")],
            ["fedavg", "fedavg, deadline=8", "mifa"],
        ),
        # Runs that differ in everything are called by their method.
        (
            [
                {"devices": {"compute": {"name": speed}}, **server(method)}
                for speed, method in (("trace", "fedavg"), ("lognormal", "ditto"))
            ],
            ["fedavg", "ditto"],
        ),
        # A key that is null here and a whole part there: each says what it has.
        (
            [{"training": {"limited": limited}} for limited in (None, {"share": 0.5, "most": 2})],
            ["limited=none", "limited.share=0.5"],
        ),
        (
            [
                {"training": {"limited": limited}}
                for limited in ({"share": 0.5, "most": 2}, {"share": 0.5, "most": 3}, None)
            ],
            ["limited.most=2", "limited.most=3", "limited=none"],
        ),
        (
            [{"stop": {"target": target}} for target in ({"accuracy": 0.9}, {"loss": 0.1}, None)],
            ["target.accuracy=0.9", "target.loss=0.1", "target=none"],
        ),
        # ... but what is switched off need not be said beside something else.
        (
            [server("fedavg", limited=None), server("fedprox", limited={"share": 0.5})],
            ["fedavg", "fedprox"],
        ),
        # Keys of one name are told apart by what they are in.
        (
            [
                {"server": {"a": {"x": a}, "b": {"x": b}}}
                for a, b in ((1, 1), (1, 2), (2, 1), (2, 2))
            ],
            ["a.x=1, b.x=1", "a.x=1, b.x=2", "a.x=2, b.x=1", "a.x=2, b.x=2"],
        ),
    ],
)
def test_labels_say_what_differs_in_the_fewest_words(
    scenarios: list[dict[str, Any]], expected: list[str]
) -> None:
    runs = [facts(scenario, 0, f"run{number}") for number, scenario in enumerate(scenarios)]
    assert [group.label for group in group_runs(runs).groups] == expected


def crossed(method: str, alpha: float) -> dict[str, Any]:
    return {**server(method), "task": {"partition": {"alpha": alpha}}}


def test_what_is_crossed_with_the_server_section_is_a_setting() -> None:
    runs = [facts(crossed(m, a), 0, f"{m}{a}") for m in ("fedavg", "mifa") for a in (0.1, 1.0)]
    assert names(group_runs(runs)) == [
        ("alpha=0.1", "fedavg", 1),
        ("alpha=0.1", "mifa", 1),
        ("alpha=1", "fedavg", 1),
        ("alpha=1", "mifa", 1),
    ]


def test_a_setting_that_is_nothing_in_some_runs_has_a_name() -> None:
    runs = [
        facts({**server(method), "training": {"limited": limited}}, 0, method)
        for method in ("fedavg", "fedlga")
        for limited in (None, {"share": 0.5, "most": 2})
    ]
    assert names(group_runs(runs)) == [
        ("limited=none", "fedavg", 1),
        ("limited=none", "fedlga", 1),
        ("limited.share=0.5", "fedavg", 1),
        ("limited.share=0.5", "fedlga", 1),
    ]


def test_what_is_tuned_for_each_variant_belongs_to_it() -> None:
    runs = [facts(crossed(m, a), 0, m) for m, a in (("fedavg", 0.1), ("mifa", 1.0))]
    assert names(group_runs(runs)) == [("", "fedavg", 1), ("", "mifa", 1)]


def test_a_failed_run_does_not_change_the_names() -> None:
    runs = [facts(crossed("fedavg", 0.1), 0, "a"), facts(crossed("mifa", 0.1), 0, "b")]
    runs.append(facts(crossed("fedavg", 1.0), 0, "c"))
    complete = group_runs(runs, others=[{"seed": 0, **crossed("mifa", 1.0)}])
    assert names(complete) == [
        ("alpha=0.1", "fedavg", 1),
        ("alpha=0.1", "mifa", 1),
        ("alpha=1", "fedavg", 1),
    ]


def test_equal_runs_of_one_seed_are_not_averaged() -> None:
    runs = [facts(server("fedavg"), 0, folder) for folder in ("a/run", "b/run")]
    assert names(group_runs(runs)) == [("", "a/run", 1), ("", "b/run", 1)]


def test_other_names_can_be_given() -> None:
    runs = [facts(crossed(m, a), 0, f"{m}{a}") for m in ("fedavg", "mifa") for a in (0.1, 1.0)]
    renamed = group_runs(runs, renamed={"mifa": "MIFA", "alpha=1": "mild"})
    assert [(group.setting, group.label) for group in renamed.groups][1::2] == [
        ("alpha=0.1", "MIFA"),
        ("mild", "MIFA"),
    ]


# -- curves ------------------------------------------------------------------------------------


def test_a_value_counts_until_the_next_is_measured_and_after_the_last() -> None:
    runs = [
        facts(server("fedavg"), 0, "a", (0.0, 10.0), (0.1, 0.5)),
        facts(server("fedavg"), 1, "b", (0.0, 4.0, 20.0), (0.3, 0.4, 0.9)),
    ]
    (group,) = group_runs(runs).groups
    places = grid([group], "accuracy", "time_s")
    assert places.tolist() == [0.0, 4.0, 10.0, 20.0]
    drawn = curve(group, "accuracy", "time_s", places)
    assert drawn.mean.tolist() == pytest.approx([0.2, 0.25, 0.45, 0.7])
    assert (drawn.high - drawn.mean).tolist() == pytest.approx(
        [math.sqrt(2) * half for half in (0.1, 0.15, 0.05, 0.2)]
    )


def test_a_curve_begins_when_all_are_measured_and_ends_with_its_longest_run() -> None:
    late = facts(server("fedavg"), 0, "a", (5.0, 10.0), (0.1, 0.5))
    early = facts(server("fedavg"), 1, "b", (0.0, 4.0), (0.3, 0.4))
    (group,) = group_runs([late, early]).groups
    drawn = curve(group, "accuracy", "time_s", np.array([0.0, 4.0, 5.0, 10.0, 11.0]))
    assert drawn.mean.tolist() == pytest.approx([NAN, NAN, 0.25, 0.45, NAN], nan_ok=True)


def test_one_run_has_no_band() -> None:
    (group,) = group_runs([facts(server("fedavg"), 0, "a", (0.0, 1.0), (0.1, 0.5))]).groups
    drawn = curve(group, "accuracy", "time_s", np.array([0.0, 1.0]))
    assert drawn.mean.tolist() == [0.1, 0.5]
    assert np.isnan(drawn.low).all()


# -- targets ------------------------------------------------------------------------------------


def test_the_first_evaluation_that_reaches_the_target_counts() -> None:
    run = facts(server("fedavg"), 0, "a", (0.0, 1.0, 2.0, 3.0), (0.1, 0.7, 0.6, 0.8))
    assert reaching(run, Target("accuracy", 0.7))["time_s"] == 1.0
    assert reaching(run, Target("accuracy", 0.7))["bytes"] == 2.0
    assert reaching(run, Target("accuracy", 0.75))["time_s"] == 3.0
    assert math.isnan(reaching(run, Target("accuracy", 0.9))["time_s"])
    assert math.isnan(reaching(run, Target("f1", 0.1))["time_s"])


@pytest.mark.parametrize(
    ("values", "is_enough", "median"),
    [
        ([1.0, 2.0, 3.0], True, 2.0),
        ([3.0, NAN, 1.0], True, 3.0),
        ([NAN, 1.0, NAN], False, NAN),
        ([4.0, NAN, NAN, 2.0], True, 4.0),
        ([NAN, NAN], False, NAN),
        ([7.0], True, 7.0),
    ],
)
def test_half_of_the_runs_are_enough(values: list[float], is_enough: bool, median: float) -> None:
    """The median exists exactly where the mean is shown: both take at least half of the runs."""
    array = np.array(values)
    assert enough(array) is is_enough
    assert median_of_reached(array) == pytest.approx(median, nan_ok=True)
    assert math.isnan(median) is not is_enough


def test_intervals_of_the_mean() -> None:
    estimate = mean_of_reached(np.array([1.0, 2.0, 3.0, NAN]))
    assert estimate.mean == 2.0
    assert 1.0 <= estimate.low < 2.0 < estimate.high <= 3.0
    alone = mean_of_reached(np.array([5.0]))
    assert (alone.mean, math.isnan(alone.low)) == (5.0, True)
    assert math.isnan(mean_of_reached(np.array([NAN, NAN])).mean)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Percentile intervals of ten normal values are a little short: near 0.9 for a nominal 0.95."""
    random = np.random.default_rng(5)
    samples = random.normal(10.0, 2.0, (300, 10))
    estimates = [mean_of_reached(sample) for sample in samples]
    covered = np.mean([estimate.low <= 10.0 <= estimate.high for estimate in estimates])
    assert 0.85 <= covered <= 0.97


def test_pairing_removes_what_the_seeds_have_in_common() -> None:
    """Times of two variants that move together: the paired interval of the ratio is far narrower."""
    days = np.array([1.0, 5.0, 9.0, 13.0, 17.0, 21.0])
    slow = 2.0 * days + np.array([0.1, -0.1, 0.05, 0.0, -0.05, 0.1])
    paired = ratio_of_means(slow, days, paired=True)
    alone = ratio_of_means(slow, days, paired=False)
    assert paired.mean == alone.mean == pytest.approx(slow.mean() / days.mean())
    assert paired.high - paired.low < 0.05 * (alone.high - alone.low)
    gap = mean_difference(slow, 2.0 * days)
    assert -0.06 < gap.low < gap.mean < gap.high < 0.1


def test_no_interval_of_fewer_than_three() -> None:
    """Of two values the resamples have only three means: the interval would be their range."""
    for few in ([5.0], [5.0, 6.0], [5.0, 6.0, NAN, NAN]):
        estimate = mean_of_reached(np.array(few))
        assert estimate.mean == np.nanmean(few)
        assert math.isnan(estimate.low)
        assert math.isnan(mean_difference(np.array([1.0, 3.0]), np.array([2.0, 2.5])).low)
    three, two = np.array([3.0, 4.0, 5.0]), np.array([2.0, NAN, 3.0])
    assert math.isfinite(ratio_of_means(three, three + 1, paired=True).low)
    assert math.isnan(ratio_of_means(three, two, paired=True).low)
    assert math.isnan(ratio_of_means(two, three, paired=False).high)


def test_no_ratio_without_a_baseline_that_got_there() -> None:
    assert math.isnan(ratio_of_means(np.array([1.0]), np.array([NAN]), paired=True).mean)
    assert math.isnan(ratio_of_means(np.array([1.0]), np.array([0.0]), paired=True).mean)
    single = ratio_of_means(np.array([3.0]), np.array([2.0]), paired=True)
    assert (single.mean, math.isnan(single.low)) == (1.5, True)
