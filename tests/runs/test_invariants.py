"""Every rule a run must keep: kept by honest runs, and each one noticed when broken."""

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsim.analysis.run import load_run
from fedsim.errors import InvariantViolation
from fedsim.runs import Run
from fedsim.runs.invariants import verify_run
from tests.runs.synthetic_runs import build_run


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("honest") / "run"
    build_run(path, clients=20, hours=6, cohort=8, asynchronous=True, seed=5)
    return path


def first(frame: pd.DataFrame, outcome: str) -> int:
    return int(frame.index[frame["outcome"] == outcome][-1])


def pause(dispatch_id: int, from_s: float, to_s: float) -> Callable[[Run], None]:
    """Adds a pause."""

    def add(run: Run) -> None:
        row = {"dispatch_id": [dispatch_id], "from_s": [from_s], "to_s": [to_s]}
        run.pauses = pd.DataFrame(row)

    return add


def changed(row: str) -> Callable[[Run], None]:
    """Changes one cell; ``row`` holds its table, its column, the outcome of its row (or any), and the change."""
    table, column, outcome, operation, text = row.split()
    words: dict[str, Any] = {
        "none": None,
        "na": pd.NA,
        "nan": math.nan,
        "dropped": text,
        "late": text,
        "crash": text,
    }

    def apply(run: Run) -> None:
        frame = getattr(run, table)
        number = len(frame) // 2 if outcome == "any" else first(frame, outcome)
        value = words[text] if text in words else ast.literal_eval(text)
        frame.loc[number, column] = value if operation == "=" else frame.loc[number, column] + value

    return apply


def swap_contributors(run: Run) -> None:
    ids = run.aggregations["contributor_ids"]
    ids.iloc[0][0], ids.iloc[1][0] = ids.iloc[1][0], ids.iloc[0][0]


def repeat_contributor(run: Run) -> None:
    ids = run.aggregations["contributor_ids"]
    ids.iloc[1][0] = ids.iloc[0][0]


def unknown_contributor(run: Run) -> None:
    run.aggregations["contributor_ids"].iloc[0][0] = 10**9


def overlap(run: Run) -> None:
    frame = run.dispatches
    client = frame["client_id"].mode()[0]
    rows = frame.index[frame["client_id"] == client]
    for column in ("arrived_s", "ended_s"):
        frame.loc[rows[0], column] = frame.loc[rows[1], "dispatched_s"] + 1e-3


CELLS = """
ids are not consecutive: dispatches dispatch_id any = -1
has no outcome: dispatches outcome aggregated = none
disagree: dispatches aggregated_version aggregated = na
disagree: dispatches aggregated_version dropped = 1
contributed to no version: dispatches aggregated_version dropped = 1
before the start: dispatches dispatched_s dropped = -1
backward at downloaded_s: dispatches downloaded_s aggregated = 0.
backward at computed_s: dispatches computed_s aggregated = 0.
backward at arrived_s: dispatches arrived_s aggregated = 0.
without the phase before: dispatches computed_s aggregated = nan
backward at ended_s: dispatches ended_s dropped = nan
ended at a different time: dispatches ended_s aggregated + 1
ended after the run: dispatches ended_s unfinished = 1e9
dropped or cut, but arrived: dispatches outcome aggregated = dropped
never arrived: dispatches outcome dropped = late
cause and outcome disagree: dispatches cause aggregated = crash
cause and outcome disagree: dispatches cause dropped = none
more steps than assigned: dispatches steps_done aggregated = 1000000
bytes_up is negative: dispatches bytes_up any = -1
energy_j is negative: dispatches energy_j any = -0.5
compute_s is negative: dispatches compute_s any = -0.5
worked for longer than it lasted: dispatches upload_s any + 1e-3
computed for longer than its steps lasted: dispatches compute_s any + 1e-3
its work and its pauses do not add up: dispatches compute_s aggregated + -1e-3
staleness is negative: dispatches staleness aggregated = -2
sequence is not: dispatches sequence any + 1
versions are not consecutive: aggregations version any + 1
time runs backward: aggregations time_s any = 0.
made after the run: aggregations time_s any = 1e9
contributor_ids disagree: aggregations contributors any + 1
aggregated before it arrived: aggregations time_s any + -400
staler at arrival: dispatches staleness aggregated = 10000
never made: dispatches version any = 1000000
version before it was made: dispatches version any + 10
evaluation ..? .1 in all.. time runs: metrics time_s any = 0.
measured a version that was never: metrics version any = 1000000
measured a version before: metrics version any + 30
steps is not the sum: clients steps any + 1
bytes_down is not the sum: clients bytes_down any + 1
compute_s is not the sum: clients compute_s any + 1e-3
waiting_s is not the sum: clients waiting_s any + 1e-3
recharged for longer: clients recharging_s any = 1e9
do not add up: clients idle_s any + -1e-3
not consecutive from 0: clients client_id any + 1
not in the table of clients: dispatches client_id any = 1000000
"""
BREAKS: list[tuple[str, Callable[[Run], None]]] = [
    *[(rule, changed(cell)) for rule, cell in (row.split(": ") for row in CELLS.split("\n")[1:-1])],
    ("paused, but is not among the dispatches", pause(10**6, 0.0, 1.0)),
    ("has a pause that ends before it begins", pause(0, 1.0, 1.0)),
    ("paused while it was not under way", pause(0, 1e6, 2e6)),
    ("still working on its previous dispatch", overlap),
    ("different version from the one in its row", swap_contributors),
    ("more than once", repeat_contributor),
    ("not among the dispatches", unknown_contributor),
]


@pytest.mark.parametrize(
    ("message", "break_it"), BREAKS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_violation_is_noticed(
    honest: Path, message: str, break_it: Callable[[Run], None]
) -> None:
    run = load_run(honest)
    _ = run.clients
    for frame in (run.dispatches, run.aggregations, run.metrics):
        assert len(frame) > 4
    run.aggregations["contributor_ids"] = [
        np.array(ids) for ids in run.aggregations["contributor_ids"]
    ]
    break_it(run)
    with pytest.raises(InvariantViolation, match=message):
        verify_run(run)


def test_empty_run_keeps_them(tmp_path: Path) -> None:
    verify_run(build_run(tmp_path / "run", clients=5, hours=0.001, cohort=0, asynchronous=True))
