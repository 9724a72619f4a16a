"""What a comparison says of itself: cautions, places that several share, few seeds, a baseline that never got there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison, Target, figures, findings
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.headline import headline
from fedsim.analysis.comparison.latex import latex
from fedsim.analysis.comparison.loading import LeftOut
from tests.analysis.comparison.made import of, run
from tests.analysis.comparison.test_groups import facts, server

GOAL = Target("accuracy", 0.8)


def data(name: str, alpha: float = 1.0) -> dict[str, Any]:
    return {"dataset": {"name": name}, "partition": {"alpha": alpha}}


# -- cautions -------------------------------------------------------------------------------------------------------


def test_variants_of_one_world_need_no_caution() -> None:
    tasks = [data("digits", alpha) for alpha in (0.1, 1.0)]
    runs = [run(method, task=task) for method in ("fedavg", "mifa") for task in tasks]
    assert cautions(of(*runs)) == []
    # What is swept besides is a setting, and a parameter of training may be tuned.
    tuned = [run(m, training={"lr": lr}) for m, lr in (("fedavg", 0.1), ("mifa", 0.2))]
    assert cautions(of(*tuned)) == []
    assert cautions(of(*[run("fedavg", task=task) for task in tasks])) == []


def test_variants_without_a_common_seed_are_a_caution() -> None:
    shared = [run("fedavg", 0), run("fedavg", 1), run("mifa", 1)]
    assert cautions(of(*shared)) == []
    apart = [*shared, run("fedbuff", 7)]
    assert cautions(of(*apart)) == [
        "The runs of fedbuff share no seed with those of fedavg: devices and data differ too; "
        "run them with the same seeds."
    ]


def test_other_weights_are_a_caution_if_clients_hold_unequal_numbers_of_samples() -> None:
    runs = [
        facts({"server": {"method": {"name": name, **weights}}}, 0, name)
        for name, weights in (
            ("fedavg", {"weights": "samples"}),
            ("wait", {"weights": "uniform"}),
            ("mifa", {}),
        )
    ]
    assert cautions(of(*runs)) == []
    unequal = [dataclasses.replace(run, unequal_samples=True) for run in runs]
    assert cautions(of(*unequal)) == [
        "Clients are weighted by samples in fedavg; equally in wait and mifa; set server.method.weights to compare the "
        "rules alone."
    ]
    assert cautions(of(*unequal[1:])) == []
    # Nothing is known about the weights of a user's own method.
    of_users_method = facts({"server": {"method": {"name": "top_k.py:TopK"}}}, 0, "top_k")
    assert (
        cautions(of(unequal[0], dataclasses.replace(of_users_method, unequal_samples=True))) == []
    )


def test_other_data_are_told_of() -> None:
    (caution,) = cautions(of(run("fedavg", task=data("digits")), run("mifa", task=data("cifar10"))))
    assert caution == (
        "Variants learn from different data: task.dataset.name is digits for fedavg; cifar10 for mifa."
    )
    # Also where nothing else differs.
    assert cautions(of(run("fedavg", task=data("digits")), run("fedavg", task=data("cifar10"))))


def test_a_world_that_differs_with_the_method_is_told_of() -> None:
    runs = [run("fedavg", task=data("digits", 0.1)), run("mifa", task=data("digits", 1.0))]
    (caution,) = cautions(of(*runs, run("fedvarp", task=data("digits", 1.0))))
    assert caution == (
        "Variants differ in more than the server: task.partition.alpha is 0.1 for fedavg; 1.0 for mifa and fedvarp."
    )


def test_runs_that_stopped_at_their_target_are_a_caution() -> None:
    stop = {"stop": {"target": {"accuracy": 0.8}}}
    runs = [run("fedavg", 0, **stop), run("fedavg", 1, (0.1, 0.5), **stop), run("mifa", 0, **stop)]
    rest = " Harder levels and final values of these runs are not comparable; to compare them, run without stop.target."
    assert cautions(of(*runs)) == [
        f"2 runs stopped at stop.target (80% accuracy): fedavg (1 of 2 runs) and mifa.{rest}"
    ]
    assert cautions(of(runs[0], runs[2])) == [
        f"2 runs stopped at stop.target (80% accuracy): fedavg and mifa.{rest}"
    ]
    finding = figures.learning(of(runs[0], runs[2]))
    assert finding is not None
    assert "do not rank the variants" in finding.finding
    assert "& final" not in latex(of(runs[0], runs[2]))
    assert "& final" in latex(of(runs[1], run("mifa", 1)))
    # There is nothing to compare, or no run ended at a target.
    assert cautions(of(*runs[:2])) == cautions(of(runs[1], run("mifa", 1))) == []


def test_a_metric_that_only_some_measured_is_told_of() -> None:
    measured = run("ditto")
    measured.progress["client_accuracy"] = [0.1, 0.9]
    measured = dataclasses.replace(measured, metrics=("accuracy", "client_accuracy"))
    comparison = of(run("fedavg"), measured, goals=(Target("client_accuracy", 0.8),))
    assert cautions(comparison) == [
        "Client accuracy was not measured for fedavg; set evaluation.per_client: true."
    ]
    assert comparison.metrics == ("client_accuracy", "accuracy")


# -- what is said of targets ------------------------------------------------------------------------------------------


def test_a_mean_over_some_of_the_runs_says_so() -> None:
    lucky = [run("mifa", seed, (0.1, 0.9) if seed == 0 else (0.1, 0.2)) for seed in (0, 1)]
    steady = [run("fedavg", seed, (0.1, 0.5, 0.9)) for seed in (0, 1)]
    comparison = of(*steady, *lucky, goals=(GOAL,))
    assert headline(comparison).startswith(
        "mifa reached 80% accuracy first, after 10 s (1 of 2 runs)"
    )
    assert figures.target_figure(comparison, GOAL, 0).finding == f"{headline(comparison)}."


def test_a_baseline_that_never_got_there_is_named() -> None:
    comparison = of(run("fedavg", accuracy=(0.1, 0.2)), run("mifa"), goals=(GOAL,))
    assert comparison.targets["relative"].isna().all()
    assert "The baseline fedavg did not reach it, so there are no relative times" in (
        figures.target_figure(comparison, GOAL, 0).finding
    )
    reached = of(run("fedavg"), run("mifa"), goals=(GOAL,))
    assert "baseline" not in figures.target_figure(reached, GOAL, 0).finding


@pytest.mark.parametrize(
    ("seeds", "times", "differences"),
    [
        (2, "An interval needs at least 3 runs.", "Fewer than 3 seeds: there are no intervals"),
        (
            3,
            "With 3 seeds an interval is little more than the range of the runs.",
            "one of 4 pairs",
        ),
        (6, "", ""),
    ],
)
def test_few_seeds_are_told_of(seeds: int, times: str, differences: str) -> None:
    runs = [run(m, seed) for m in ("fedavg", "mifa") for seed in range(seeds)]
    comparison = of(*runs, goals=(GOAL,))
    assert times in figures.target_figure(comparison, GOAL, 0).extra["note"]
    pairs = figures.pairs(comparison)
    assert pairs is not None
    assert differences in pairs.finding + pairs.extra["note"]
    assert comparison.targets["time_low_s"].isna().all() == (seeds < 3)
    if seeds == 6:
        assert "little more" not in figures.target_figure(comparison, GOAL, 0).extra["note"]
        assert "chance" not in pairs.finding + pairs.extra["note"]


def test_pairs_have_the_baseline_first_in_order_and_second_in_place() -> None:
    runs = [run(name, accuracy=(0.1, end)) for name, end in (("a", 0.5), ("b", 0.7), ("c", 0.4))]
    comparison = of(*runs, baseline="b", goals=(Target("accuracy", 0.99),))
    pairs = comparison.pairs[comparison.pairs["quantity"] == "final accuracy"]
    names = list(zip(pairs["first"], pairs["second"], strict=True))
    assert names == [("a", "b"), ("c", "b"), ("a", "c")]
    figure = figures.pairs(comparison)
    assert figure is not None
    # Nobody reached the target: nothing to subtract, no row.
    shown = next(column for column in figure.columns if column.key == "difference")
    assert shown.values == ["−20.0 pp", "−30.0 pp", "+10.0 pp"]


def test_who_is_alike_is_not_ranked() -> None:
    finding = figures.learning(of(run("fedavg"), run("mifa")))
    assert finding is not None
    assert finding.finding == "Both tied, with 90.0% accuracy."
    # Equal to the last digit that is shown.
    close = of(
        run("fedavg"), run("mifa", accuracy=(0.1, 0.9 - 1e-5)), run("scaffold", accuracy=(0.1, 0.5))
    )
    finding = figures.learning(close)
    assert finding is not None
    assert finding.finding == "fedavg and mifa ended best, with 90.0% accuracy."
    written = "{:.1f}".format
    assert findings.leader(close.summary, "final_accuracy", written) == "fedavg and mifa"
    frame = of(run("fedavg", accuracy=(0.1, 0.5)), run("mifa")).summary
    assert findings.leader(frame, "final_accuracy", "{:.1f}".format) == "mifa"
    assert findings.leader(frame, "runs", "{:.1f}".format) == ""


def test_a_target_that_nobody_measured_is_no_target() -> None:
    timed = facts({**server("fedavg"), "stop": {"target": {"accuracy": 0.9}}})
    assert of(timed).goals == ()


def test_runs_that_are_left_out_are_counted_by_reason() -> None:
    reasons = ["was not started", "was not started", "was interrupted", "failed (no luck)"]
    left_out = tuple(LeftOut(Path(f"r{n}"), reason, None) for n, reason in enumerate(reasons))
    assert cautions(Comparison(((run("fedavg"),), left_out, None))) == [
        "4 runs left out (r0, r1, r2 and 1 more): was not started (2); was interrupted (1); failed (no luck) (1)."
    ]


# -- many variants --------------------------------------------------------------------------------------------------


def test_a_run_that_is_given_twice_is_a_caution() -> None:
    runs = [run("fedavg", 0), run("fedavg", 1), run("mifa", 0)]
    copy = dataclasses.replace(runs[0], path=Path("copies/run"))
    (sentence,) = cautions(of(*runs, copy))
    assert sentence.endswith(
        " are runs of one scenario with the same seeds, and their results are identical; one of them is enough."
    )
    assert sentence.startswith("fedavg0 and run are runs")
    other = dataclasses.replace(copy, digest="other")
    assert "seeds, but their results differ, for example" in cautions(of(*runs, other))[0]
