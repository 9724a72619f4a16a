"""Every rule a run must keep: kept by honest runs, and each one noticed when broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedsim
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


@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(4, 30),
    cohort=st.integers(4, 12),
    asynchronous=st.booleans(),
)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_honest_runs_keep_them(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    clients: int,
    cohort: int,
    asynchronous: bool,
) -> None:
    path = tmp_path_factory.mktemp("random") / "run"
    verify_run(
        build_run(
            path, clients=clients, hours=3, cohort=cohort, asynchronous=asynchronous, seed=seed
        )
    )


def first(frame: pd.DataFrame, outcome: str) -> int:
    return int(frame.index[frame["outcome"] == outcome][-1])


def pause(dispatch_id: int, from_s: float, to_s: float) -> Callable[[Run], None]:
    """Adds a pause."""

    def add(run: Run) -> None:
        row = {"dispatch_id": [dispatch_id], "from_s": [from_s], "to_s": [to_s]}
        run.pauses = pd.DataFrame(row)

    return add


def set_cell(
    table: str, column: str, outcome: str | None, change: Callable[[object], object]
) -> Callable[[Run], None]:
    def apply(run: Run) -> None:
        frame = getattr(run, table)
        row = first(frame, outcome) if outcome else len(frame) // 2
        frame.loc[row, column] = change(frame.loc[row, column])

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


BREAKS: list[tuple[str, Callable[[Run], None]]] = [
    ("ids are not consecutive", set_cell("dispatches", "dispatch_id", None, lambda v: -1)),
    ("has no outcome", set_cell("dispatches", "outcome", "aggregated", lambda v: None)),
    ("disagree", set_cell("dispatches", "aggregated_version", "aggregated", lambda v: pd.NA)),
    ("disagree", set_cell("dispatches", "aggregated_version", "dropped", lambda v: 1)),
    (
        "contributed to no version",
        set_cell("dispatches", "aggregated_version", "dropped", lambda v: 1),
    ),
    ("before the start", set_cell("dispatches", "dispatched_s", "dropped", lambda v: -1.0)),
    (
        "backward at downloaded_s",
        set_cell("dispatches", "downloaded_s", "aggregated", lambda v: 0.0),
    ),
    ("backward at computed_s", set_cell("dispatches", "computed_s", "aggregated", lambda v: 0.0)),
    ("backward at arrived_s", set_cell("dispatches", "arrived_s", "aggregated", lambda v: 0.0)),
    (
        "without the phase before",
        set_cell("dispatches", "computed_s", "aggregated", lambda v: math.nan),
    ),
    ("backward at ended_s", set_cell("dispatches", "ended_s", "dropped", lambda v: math.nan)),
    (
        "ended at a different time",
        set_cell("dispatches", "ended_s", "aggregated", lambda v: v + 1.0),
    ),
    ("ended after the run", set_cell("dispatches", "ended_s", "unfinished", lambda v: 1e9)),
    (
        "dropped or cut, but arrived",
        set_cell("dispatches", "outcome", "aggregated", lambda v: "dropped"),
    ),
    ("never arrived", set_cell("dispatches", "outcome", "dropped", lambda v: "late")),
    (
        "cause and outcome disagree",
        set_cell("dispatches", "cause", "aggregated", lambda v: "crash"),
    ),
    ("cause and outcome disagree", set_cell("dispatches", "cause", "dropped", lambda v: None)),
    (
        "more steps than assigned",
        set_cell("dispatches", "steps_done", "aggregated", lambda v: 10**6),
    ),
    ("bytes_up is negative", set_cell("dispatches", "bytes_up", None, lambda v: -1)),
    ("energy_j is negative", set_cell("dispatches", "energy_j", None, lambda v: -0.5)),
    ("compute_s is negative", set_cell("dispatches", "compute_s", None, lambda v: -0.5)),
    (
        "worked for longer than it lasted",
        set_cell("dispatches", "compute_s", None, lambda v: v + 1e-3),
    ),
    (
        "its work and its pauses do not add up",
        set_cell("dispatches", "compute_s", "aggregated", lambda v: v - 1e-3),
    ),
    ("paused, but is not among the dispatches", pause(10**6, 0.0, 1.0)),
    ("has a pause that ends before it begins", pause(0, 1.0, 1.0)),
    ("paused while it was not under way", pause(0, 1e6, 2e6)),
    ("staleness is negative", set_cell("dispatches", "staleness", "aggregated", lambda v: -2)),
    ("sequence is not", set_cell("dispatches", "sequence", None, lambda v: v + 1)),
    ("still working on its previous dispatch", overlap),
    ("versions are not consecutive", set_cell("aggregations", "version", None, lambda v: v + 1)),
    ("time runs backward", set_cell("aggregations", "time_s", None, lambda v: 0.0)),
    ("made after the run", set_cell("aggregations", "time_s", None, lambda v: 1e9)),
    ("contributor_ids disagree", set_cell("aggregations", "contributors", None, lambda v: v + 1)),
    ("different version from the one in its row", swap_contributors),
    ("more than once", repeat_contributor),
    ("not among the dispatches", unknown_contributor),
    ("aggregated before it arrived", set_cell("aggregations", "time_s", None, lambda v: v - 400.0)),
    ("staler at arrival", set_cell("dispatches", "staleness", "aggregated", lambda v: 10**4)),
    ("never made", set_cell("dispatches", "version", None, lambda v: 10**6)),
    ("version before it was made", set_cell("dispatches", "version", None, lambda v: v + 10)),
    (r"evaluation \d+ \(1 in all\): time runs", set_cell("metrics", "time_s", None, lambda v: 0.0)),
    ("measured a version that was never", set_cell("metrics", "version", None, lambda v: 10**6)),
    ("measured a version before", set_cell("metrics", "version", None, lambda v: v + 30)),
    ("steps is not the sum", set_cell("clients", "steps", None, lambda v: v + 1)),
    ("bytes_down is not the sum", set_cell("clients", "bytes_down", None, lambda v: v + 1)),
    ("compute_s is not the sum", set_cell("clients", "compute_s", None, lambda v: v + 1e-3)),
    ("waiting_s is not the sum", set_cell("clients", "waiting_s", None, lambda v: v + 1e-3)),
    ("recharged for longer", set_cell("clients", "recharging_s", None, lambda v: 1e9)),
    ("do not add up", set_cell("clients", "idle_s", None, lambda v: v - 1e-3)),
    ("not consecutive from 0", set_cell("clients", "client_id", None, lambda v: v + 1)),
    ("not in the table of clients", set_cell("dispatches", "client_id", None, lambda v: 10**6)),
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


@pytest.mark.parametrize(
    ("row", "energy_j", "rule"),
    [(0, 50.1, "held"), (0, 49.0, "below the floor"), (1, 26.0, "held")],
)
def test_energy_that_is_not_conserved_is_noticed(
    row: int, energy_j: float, rule: str, tmp_path: Path
) -> None:
    """50 J, a floor of 25 J, 2 W of recharging: each dispatch computes 15 s at 2 W and is ready 2.5 s later."""
    run = fedsim.run(
        {
            "name": "battery",
            "task": {"name": "timing", "clients": 1, "parameters": 1},
            "training": {"local_steps": 15},
            "devices": {
                "compute": {"name": "values", "step": "1s"},
                "network": {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"},
                "energy": {
                    "battery_j": 50, "battery_floor": 0.5, "recharge_w": 2,
                    "compute_w": 2, "download_w": 0, "upload_w": 0,
                },
            },
            "stop": {"rounds": 2},
        },
        tmp_path / "run",
    )  # fmt: skip
    assert run.dispatches["dispatched_s"].tolist()[1] == pytest.approx(17.5)
    verify_run(Run(run.folder))
    broken = Run(run.folder)
    broken.dispatches.loc[row, "energy_j"] = energy_j
    with pytest.raises(InvariantViolation, match=rule):
        verify_run(broken)
