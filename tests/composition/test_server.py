"""How much a server's evaluations cost, and how much work its clients are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedsim
from tests.composition.worlds import digits


def test_evaluations_cost_a_tenth_of_the_training_unless_told_otherwise(tmp_path: Path) -> None:
    """360 test samples are worth 75 steps of 16 samples, forward and backward; the last version is always measured."""
    run = fedsim.run(digits(evaluation={}, stop={"rounds": 20}), tmp_path / "run")
    measured = run.metrics["version"].to_list()
    steps = (
        run.dispatches[run.dispatches.outcome == "aggregated"]
        .groupby("aggregated_version")
        .steps_done.sum()
    )
    expected, since = [0], 0
    for version, done in steps.items():
        since += done
        if since >= 75:
            expected.append(version)
            since = 0
    assert 2 < len(expected) < 20
    assert measured == sorted({*expected, int(steps.index.max())})


def test_what_clients_and_objective_cost_makes_evaluations_rarer(tmp_path: Path) -> None:
    """Evaluations cost 359 forward passes; with the clients' own tests 288 more, with 1,150 samples' gradients 3,450.

    A tenth of a step of 16 samples is 4.8 of them: 75, 135 and 794 steps. Rounds make 20 steps of 4 clients.
    """
    partition = {"name": "iid", "clients": 12, "test": "split"}
    server = {"selection": {"name": "uniform", "cohort": 4}}
    base = digits(evaluation={}, server=server, stop={"rounds": 46})
    base["task"] = {**base["task"], "partition": partition}

    def second(**changes: Any) -> int:
        run = fedsim.run({**base, **changes}, tmp_path / str(len(list(tmp_path.iterdir()))))
        return int(run.metrics["version"].iloc[1])

    assert second() == 4
    assert second(evaluation={"per_client": True}) == 7
    assert second(server={**server, "method": {"name": "fedper"}}) == 7
    assert second(evaluation={"objective": True}) == 40
