"""What a comparison says of itself: cautions, few seeds, a baseline that never got there."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.analysis.comparison import Comparison, Target, figures
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.latex import latex
from fedsim.analysis.comparison.loading import LeftOut
from tests.analysis.comparison.made import GOAL, of, run
from tests.analysis.comparison.test_groups import facts
from tests.analysis.documents import drawn


def data(name: str, alpha: float = 1.0, method: str = "fedavg") -> RunFacts:
    return run(method, task={"dataset": {"name": name}, "partition": {"alpha": alpha}})


def weighted(method: str, *, unequal: bool = True, **weights: Any) -> RunFacts:
    run = facts({"server": {"method": {"name": method, **weights}}}, 0, method)
    return dataclasses.replace(run, unequal_samples=unequal)


def stopped(method: str, last: float = 0.9) -> RunFacts:
    return run(method, 0, (0.1, last), stop={"target": {"accuracy": 0.8}})


def copied(digest: str) -> RunFacts:
    return dataclasses.replace(run("fedavg"), path=Path("copies/run"), digest=digest)


WEIGHTS = "samples for fedavg; uniform for wait and mifa; set server.method.weights"


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # What is swept besides is a setting, and a parameter of training may be tuned.
        ([data("digits", alpha, m) for m in ("fedavg", "mifa") for alpha in (0.1, 1.0)], ""),
        ([run(m, training={"lr": lr}) for m, lr in (("fedavg", 0.1), ("mifa", 0.2))], ""),
        ([data("digits", 0.1), data("digits", 1.0)], ""),
        ([data("digits"), data("cifar10", method="mifa")], "different data: task.dataset.name"),
        ([data("digits"), data("cifar10")], "different data: task.dataset.name"),
        (
            [data("digits", 0.1), data("digits", method="mifa"), data("digits", method="fedvarp")],
            "more than the server, so the cause of a difference is unclear: task.partition.alpha",
        ),
        ([run("fedavg", 0), run("fedavg", 1), run("mifa", 1)], ""),
        ([run("fedavg", 0), run("fedbuff", 7)], "fedbuff share no seed with those of fedavg"),
        (
            [weighted("fedavg", weights="samples"), weighted("wait", weights="uniform"), weighted("mifa")],
            WEIGHTS,
        ),
        ([weighted("wait", weights="uniform"), weighted("mifa")], ""),
        ([weighted("fedavg", weights="samples", unequal=False), weighted("mifa", unequal=False)], ""),
        # Nothing is known about the weights of a user's own method.
        ([weighted("fedavg", weights="samples"), weighted("top_k.py:TopK")], ""),
        (
            [stopped("fedavg"), stopped("mifa"), stopped("fedbuff", 0.5)],
            "2 runs stopped at stop.target: fedavg and mifa",
        ),
        # There is nothing to compare, or no run ended at a target.
        ([stopped("fedavg")], ""),
        ([stopped("fedavg", 0.5), stopped("mifa", 0.5)], ""),
        ([run("fedavg"), copied("fedavg0")], "fedavg0 and run are runs of one scenario with the same seeds"),
        ([run("fedavg"), copied("fedavg0")], "identical: one is enough"),
        ([run("fedavg"), copied("other")], "different: code or libraries changed"),
        (
            [run("fedavg"), dataclasses.replace(run("mifa"), diverged_s=90.0, lost=("accuracy",))],
            "1 run diverged, the first after 1 min 30 s: mifa",
        ),
    ],
)  # fmt: skip
def test_cautions(runs: list[RunFacts], expected: str) -> None:
    sentences = cautions(of(*runs))
    assert len(sentences) == bool(expected)
    assert expected in "".join(sentences)


def test_a_caution_names_its_settings_unless_it_holds_in_all() -> None:
    def seeds(*, apart: int) -> list[RunFacts]:
        return [
            run(method, seed, task={"alpha": alpha})
            for alpha in (1, 2)
            for method, seed in (("fedavg", 0), ("mifa", 7 if alpha <= apart else 0))
        ]

    every = "The runs of mifa share no seed"
    assert cautions(of(*seeds(apart=1)))[0].startswith(f"alpha=1: {every}")
    assert cautions(of(*seeds(apart=2)))[0].startswith(every)


def test_runs_that_stopped_at_their_target_are_not_ranked_by_their_final_values() -> None:
    comparison = of(stopped("fedavg"), stopped("mifa"))
    finding = drawn(figures.learning(comparison))
    assert "do not rank the variants" in finding.finding
    assert "& final" not in latex(comparison)
    assert "& final" in latex(of(stopped("fedavg", 0.5), run("mifa", 1)))


def test_a_metric_that_only_some_measured_is_a_caution() -> None:
    measured = run("ditto")
    measured.progress["client_accuracy"] = np.array([0.1, 0.9])
    measured = dataclasses.replace(measured, metrics=("accuracy", "client_accuracy"))
    comparison = of(run("fedavg"), measured, goals=(Target("client_accuracy", 0.8),))
    assert cautions(comparison) == [
        "Client accuracy was not measured for fedavg; set evaluation.per_client: true."
    ]
    assert comparison.metrics == ("client_accuracy", "accuracy")


def test_values_are_those_of_the_runs_that_measured_and_a_caution_counts_the_others() -> None:
    runs = [run("fedavg", seed, (0.1, 0.8 + seed / 10)[: 2 * (seed < 2)]) for seed in range(3)]
    comparison = of(*runs, run("mifa"), goals=(GOAL,))
    values = comparison.summary.set_index("label").loc["fedavg"]
    assert (values["runs"], values["final_accuracy"], values["best_accuracy"]) == (
        *(3, pytest.approx(0.85)),
        pytest.approx(0.85),
    )
    assert cautions(comparison) == [
        "Accuracy was not measured in 1 of 3 runs of fedavg, and is that of the other runs."
    ]


def test_runs_that_are_left_out_are_named_with_the_reasons() -> None:
    reasons = ["was not started", "was not started", "was interrupted", "failed (no luck)"]
    left_out = tuple(LeftOut(Path(f"r{n}"), reason, None) for n, reason in enumerate(reasons))
    assert cautions(Comparison(((run("fedavg"),), left_out, None))) == [
        "4 runs left out (r0, r1, r2 and 1 more): was not started; was interrupted; failed (no luck)."
    ]
