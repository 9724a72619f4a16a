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
    ("settings", "where", "fix"),
    [
        ({"server.schedule": {"name": "buffered", "buffer_size": 2}}, "server.schedule", "sync"),
        (
            {"server.schedule": {"name": "sync", "deadline": "9s"}},
            "server.schedule",
            "without deadline",
        ),
        (
            {"server.schedule": {"name": "sync", "over_selection": 1.5}},
            "server.schedule",
            "over_selection",
        ),
        ({"server.schedule": {"name": "timely", "share": 0.5}}, "server.schedule", "sync"),
        ({"server.failure_detection": "never"}, "server.failure_detection", "give the time"),
        ({"server.method": "scaffold"}, "server.method", "fedavg"),
        (
            {"server.method": {"name": "streaming_diloco", "fragments": 2}},
            "server.method",
            "diloco",
        ),
        ({"server.compression.up": "signsgd"}, "server.compression.up", "cast"),
        ({"server.compression.down": "cast"}, "server.compression.down", "none"),
        ({"server.edges": {"count": 2}}, "server.edges", "remove"),
        ({"devices.failures.upload_loss": 0.1}, "devices.failures.upload_loss", "crash_rate"),
        (
            {"server.submodels": {"name": "heterofl", "rates": [1, 0.5], "by": "speed"}},
            "server.submodels",
            "whole",
        ),
    ],
)
def test_what_has_no_ring(settings: dict[str, Any], where: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        run(digits(server={}), tmp_path / "run", overrides={**RING, **settings})
    errors = getattr(refused.value, "errors", (refused.value,))
    of_ring = [error for error in errors if "there is no ring" in str(error)]
    assert any(where in str(error.where) and fix in str(error.hint) for error in of_ring)
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
