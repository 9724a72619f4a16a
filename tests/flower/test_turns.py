"""Threads of a ServerApp in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.flower import apps
from tests.flower.worlds import devices

pytestmark = pytest.mark.usefixtures("without_reports")


def test_the_older_interface(run_app: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Every message is sent from a thread of its own; all take the time that they would take together."""
    run = run_app(
        apps.legacy_server(rounds=2),
        apps.numpy_client(),
        {"task": {"clients": 3}, "devices": devices(["1s", "2s", "3s"], "example")},
    )
    assert run.dispatches["outcome"].eq("aggregated").all()
    assert run.dispatches.query("round == 0")["arrived_s"].round().tolist() == [10, 20, 30]
    assert len(run.dispatches) == 6
    measured = run.metrics.dropna(subset="client_mean")
    # The mean of the shifts 0, 1 and 2 is added in each round; evaluations take a third.
    assert measured["client_mean"].tolist() == [1.0, 2.0]
    assert measured["time_s"].round().tolist() == [40, 80]
    assert run.info["rounds"] == 2
    with caplog.at_level("INFO", "flwr"):
        run_app(apps.legacy_server(1), apps.numpy_client(), {"devices": devices("1s", "example")})
    assert "Run finished 1 round(s) in 13.3" in caplog.text
