"""The rules on a finished run, from tables written by hand and from small runs."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsim.api import read_scenario
from fedsim.composition.build import build
from fedsim.composition.rules.finished import FINISHED, FinishedRun, learned_nothing
from fedsim.composition.run import execute
from fedsim.errors import UserError
from tests.composition.worlds import quadratic, timed
from tests.runs.test_run import NAN, run_of


def table_of(
    outcomes: list[str],
    rounds: list[int] | None = None,
    versions: int = 1,
    **columns: list[float],
) -> Any:
    """A run with dispatches of these outcomes and rounds, all of whose updates arrived but for lost ones."""
    run = run_of(columns or {"loss": [1.0]})
    arrived = [NAN if outcome == "dropped" else 1.0 for outcome in outcomes]
    run.dispatches = pd.DataFrame(
        {
            "outcome": outcomes,
            "arrived_s": arrived,
            "steps_done": 1,
            "round": np.array(rounds or [0] * len(outcomes), np.int64),
        }
    )
    run.aggregations = pd.DataFrame({"version": range(versions)})
    run.clients = pd.DataFrame({"client_id": [0]})
    run.has_edges = False
    run.simulated_s = 10.0
    run.scenario["stop"] = {"target": {}}
    run.time_to = lambda name, target: next(
        (10.0 * row for row, value in enumerate(run.metrics[name]) if value <= target), NAN
    )
    return run


def finished(
    run: Any, ran_out: bool = False, drew_nobody: bool = False, **server: Any
) -> FinishedRun:
    """A finished run of a scenario with a cohort of 6 of 10 clients, and these changes of its server."""
    cohort = {"name": "uniform", "cohort": 6}
    scenario = timed(task={"name": "timing", "clients": 10}, server={"selection": cohort, **server})
    scenario["devices"]["compute"]["step"] = "1s"
    return FinishedRun(run, build(read_scenario(scenario)), ran_out, drew_nobody)


def target(run: Any, **levels: float) -> Any:
    run.scenario["stop"] = {"target": levels}
    return run


def every_eighth(run: Any) -> Any:
    """The run, if only every eighth version was evaluated."""
    run.metrics["version"] *= 8
    return run


def with_metric(run: Any) -> Any:
    run.scenario["evaluation"]["metrics"] = ["rare.py:share"]
    return run


AGGREGATED = ["aggregated"] * 6
EXAMPLES: dict[str, tuple[FinishedRun, FinishedRun]] = {
    "nothing-dispatched": (
        finished(table_of([], versions=0)),
        finished(target(table_of([], versions=0, loss=[1.0]), loss=2.0)),
    ),
    "nothing-aggregated": (
        finished(table_of(["late"] * 6, versions=0)),
        finished(table_of(AGGREGATED)),
    ),
    "no-work-left": (
        finished(table_of(AGGREGATED), ran_out=True),
        finished(table_of(AGGREGATED)),
    ),
    "waited-for-nodes": (
        FinishedRun(table_of(AGGREGATED), nodes_online=1),
        FinishedRun(table_of(AGGREGATED)),
    ),
    "small-rounds": (
        finished(table_of(["aggregated"] * 4, [0, 1, 2, 2])),
        finished(table_of(["aggregated"] * 7, [0, 1, 1, 1, 2, 2, 2])),
    ),
    "high-loss": (
        finished(table_of(AGGREGATED, loss=[2.0, 1.0, 20.1])),
        finished(table_of(AGGREGATED, loss=[2.0, 30.0, 20.0])),
    ),
    "learned-nothing": (
        finished(table_of(AGGREGATED, loss=[2.0, 2.1])),
        finished(table_of(AGGREGATED, loss=[2.0, 1.9])),
    ),
    "diverged-model": (
        finished(table_of(AGGREGATED, loss=[2.0, math.inf])),
        finished(table_of(AGGREGATED, loss=[2.0, NAN, 1.0])),
    ),
    "undefined-metric": (
        finished(with_metric(table_of(AGGREGATED, loss=[1.0, 1.0], share=[0.5, NAN]))),
        finished(with_metric(table_of(AGGREGATED, loss=[1.0, 1.0], share=[NAN, 0.5]))),
    ),
    "target-met-at-first-evaluation": (
        finished(target(every_eighth(table_of(AGGREGATED, loss=[3.0, 1.0])), loss=2.0)),
        finished(target(every_eighth(table_of(AGGREGATED, loss=[3.0, 2.5, 1.0])), loss=2.0)),
    ),
    "target-met-at-start": (
        finished(target(table_of([], versions=0, loss=[1.0]), loss=2.0)),
        finished(target(table_of(AGGREGATED, loss=[1.0]), loss=2.0)),
    ),
}


def rules_of(run: FinishedRun, ignored: tuple[str, ...] = ()) -> list[str | None]:
    return [warning.rule for warning in FINISHED.warnings(run, ignored)]


def test_every_rule_has_examples() -> None:
    """Those of two rules are in test_planned.py."""
    assert EXAMPLES.keys() | {"drifting-hours", "unobserved-time"} == FINISHED.checks.keys()


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_applies_to_its_example_only_and_can_be_ignored(rule: str) -> None:
    triggers, passes = EXAMPLES[rule]
    assert rules_of(triggers) == [rule]
    assert rules_of(triggers, (rule,)) == []
    assert rule not in rules_of(passes)


@pytest.mark.parametrize(
    ("rounds", "schedule", "warned"),
    [
        ([*range(2100)], {}, "2,100 of 2,100 rounds"),
        ([0, 1, 3, 3, 3], {}, "2 of 3 rounds"),
        ([0, 1, 2], {"min_updates": 0}, "3 of 3 rounds"),
        ([0, 1, 2], {"min_cohort": 2}, ""),
        ([0, 1, 2], {"name": "async"}, ""),
    ],
)
def test_rounds_of_few_clients_are_counted(
    rounds: list[int], schedule: dict[str, Any], warned: str
) -> None:
    run = table_of(["aggregated"] * len(rounds), rounds)
    warnings = FINISHED.warnings(finished(run, schedule={"name": "sync", **schedule}), ())
    assert [each.message.partition(" began")[0] for each in warnings] == [warned][: bool(warned)]


@pytest.mark.parametrize(
    ("losses", "warned"),
    [
        ([NAN, 1.0, 20.1], False),
        ([0.0, 20.1], False),
        ([-1.0, 20.1], False),
        ([2.0, 20.1], True),
    ],
)
def test_a_loss_is_compared_with_that_of_the_initial_model(
    losses: list[float], warned: bool
) -> None:
    assert ("high-loss" in rules_of(finished(table_of(AGGREGATED, loss=losses)))) == warned


@pytest.mark.parametrize(
    ("classes", "accuracy", "losses", "said"),
    [
        (10, 0.117, [2.3, 9.0], ["11.7%", "a guess among 10 classes reaches 10", "9", "smaller"]),
        (10, 0.117, [2.3, 2.3], ["11.7%", "another learning rate"]),
        (10, 0.13, [2.3, 9.0], []),
        (2, 0.52, [0.7, 0.7], ["52.0%", "50.0%"]),
        (2, 0.53, [0.7, 0.7], []),
        (100, 0.012, [4.6, 4.6], ["1.0%"]),
    ],
)
def test_an_accuracy_is_compared_with_that_of_a_guess(
    classes: int, accuracy: float, losses: list[float], said: list[str]
) -> None:
    run = table_of(AGGREGATED, loss=losses, accuracy=[0.1, accuracy])
    world: Any = SimpleNamespace(task=SimpleNamespace(dataset=SimpleNamespace(classes=classes)))
    warnings = list(learned_nothing(FinishedRun(run, world)))
    assert len(warnings) == bool(said)
    assert all(text in str(warnings[0]) for text in said)


@pytest.mark.parametrize(
    ("errors", "steps", "hint"),
    [
        (3, 1, "the ClientApp failed on 3 messages"),
        (0, 1, "the timeouts of the app"),
        (0, 0, "devices.compute.unit=example"),
    ],
)
def test_a_flower_app_without_updates_is_told_why(errors: int, steps: int, hint: str) -> None:
    run = table_of(["discarded"], versions=0)
    run.info["client_errors"] = errors
    run.dispatches["steps_done"] = steps
    (warning,) = FINISHED.warnings(FinishedRun(run), ())
    assert warning.rule == "nothing-aggregated"
    assert hint in str(warning.hint)


def test_a_run_notes_its_warnings_but_those_that_the_page_gives(tmp_path: Path) -> None:
    scenario = quadratic([[0, 1]], stop={"rounds": 1, "target": {"loss": 1e9}})
    warnings: list[UserError] = []
    run = execute(read_scenario(scenario), tmp_path / "met", on_warning=warnings.append)
    assert run.time_to("loss", 1e9) == 0
    assert [warning.rule for warning in warnings] == ["target-met-at-start"]
    assert "notes" not in run.info
