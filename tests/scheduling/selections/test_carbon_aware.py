"""Waiting for a cleaner hour, on paper: rounds of 43.1 s under a grid of four hours that repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from tests.composition.worlds import timed

pytestmark = pytest.mark.usefixtures("without_reports")

HOUR, ROUND = 3600.0, 43.1


def began(folder: Path, values: dict[str, list[int]], **selection: Any) -> tuple[Any, fedsim.Run]:
    """When rounds began, and the run; intensities by region and hour."""
    for name, hours in values.items():
        rows = "".join(f"2024-01-01T{hour:02}:00Z,{value}\n" for hour, value in enumerate(hours))
        (folder / f"{name}.csv").write_text(f"time,intensity\n{rows}")
    carbon = {"file": str(folder / "{region}.csv"), "region": dict.fromkeys(values, 1)}
    scenario = timed(
        devices={"carbon": carbon},
        server={"selection": {"name": "carbon_aware", **selection}},
        stop={"rounds": 3},
    )
    run = fedsim.run(scenario, folder / "run")
    return run.dispatches.groupby("round")["dispatched_s"].min().tolist(), run


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        ("30min", [0, ROUND, 2 * ROUND]),
        # 100 at 1 h is the least of the first two hours, 50 at 3 h that of the next two; then nothing is cleaner.
        ("2h", [HOUR, 3 * HOUR, 3 * HOUR + ROUND]),
        ("4h", [3 * HOUR, 3 * HOUR + ROUND, 3 * HOUR + 2 * ROUND]),
    ],
)
def test_rounds_begin_in_the_cleanest_hour_within_the_wait(
    tmp_path: Path, wait: str, expected: list[float]
) -> None:
    times, run = began(tmp_path, {"A": [300, 100, 200, 50]}, wait=wait)
    assert times == pytest.approx(expected)
    waited = run.critical.query("cause == 'selection'")
    assert (waited["to_s"] - waited["from_s"]).sum() == pytest.approx(
        expected[-1] - 2 * ROUND, abs=1e-6
    )


def test_each_region_waits_for_its_own_hour(tmp_path: Path) -> None:
    values = {"A": [300, 100, 200, 250], "B": [300, 200, 50, 250]}
    times, run = began(tmp_path, values, wait="2h")
    first = run.dispatches[run.dispatches["round"] == 0]["client_id"]
    assert set(run.clients["region"][first]) == {"A"}
    assert times[0] == HOUR


def test_the_grid_is_needed() -> None:
    with pytest.raises(UserError, match="carbon intensity"):
        fedsim.run(timed(server={"selection": {"name": "carbon_aware"}}))
