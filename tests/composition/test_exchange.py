"""Rounds whose clients exchange updates among themselves: what is refused, and what a run writes."""

from pathlib import Path
from typing import Any

import pytest

from fedsim.api import read_scenario, run
from fedsim.composition.build import build
from fedsim.errors import UserError
from tests.composition.worlds import digits, quadratic

RING: dict[str, Any] = {"server.exchange": "ring"}


@pytest.mark.parametrize(
    ("schedule", "fix"),
    [
        ({"name": "sync", "deadline": "9s"}, "without deadline"),
        ({"name": "sync", "over_selection": 1.5}, "over_selection"),
        ({"name": "timely", "share": 0.5}, "sync"),
    ],
)
def test_what_has_no_ring(schedule: dict[str, Any], fix: str, tmp_path: Path) -> None:
    """Other combinations are in ``tests/pairs/refused.json``."""
    with pytest.raises(UserError) as refused:
        run(digits(server={}), tmp_path / "run", overrides={**RING, "server.schedule": schedule})
    errors = getattr(refused.value, "errors", (refused.value,))
    of_ring = [error for error in errors if "there is no ring" in str(error)]
    assert any("server.schedule" in str(one.where) and fix in str(one.hint) for one in of_ring)
    assert not any("give a deadline" in str(error.hint) for error in errors), "a ring has none"


@pytest.mark.parametrize("exchange", ["ring", "tree"])
@pytest.mark.parametrize("method", ["fedavg", "diloco", "fedadam", "fedprox"])
def test_the_model_does_not_depend_on_the_exchange(
    exchange: str, method: str, tmp_path: Path
) -> None:
    """It is the mean of the same updates; only a client that missed a round downloads again."""
    settings = {"server.method": {"name": method, **({"mu": 0.1} if method == "fedprox" else {})}}
    through = run(
        quadratic([[0, 1, 2], [0, 2], [0, 1, 2]]), tmp_path / "server", overrides=settings
    )
    among = run(
        quadratic([[0, 1, 2], [0, 2], [0, 1, 2]]),
        tmp_path / "among",
        overrides={**settings, "server.exchange": exchange},
    )
    assert through.metrics["loss"].tolist() == among.metrics["loss"].tolist()
    loads = among.dispatches.query("downloaded_s > dispatched_s")
    assert loads[["round", "client_id"]].values.tolist() == [[0, 0], [0, 1], [0, 2], [2, 1]]


@pytest.mark.parametrize("exchange", ["server", "ring", "tree"])
def test_selections_expect_the_time_through_the_exchange(exchange: str, tmp_path: Path) -> None:
    """Of clients that are alike, it is the time of each dispatch."""
    scenario = {
        "name": "alike",
        "task": {"name": "timing", "clients": 5, "parameters": 1e6},
        "training": {"local_steps": 3},
        "devices": {
            "compute": {"name": "values", "step": 0.5},
            "network": {"name": "static", "latency": "30ms", "down": "9Mbps", "up": "4Mbps"},
        },
        "server": {"exchange": exchange, "selection": {"name": "uniform", "cohort": 5}},
        "stop": {"rounds": 2},
    }
    expected_s = build(read_scenario(scenario), timing_only=True).expected_duration_s(2)
    rows = run(scenario, tmp_path / "run", timing_only=True).dispatches
    last = rows[rows["round"] == 1]
    assert (last["arrived_s"] - last["dispatched_s"]).to_numpy() == pytest.approx(expected_s)
