"""The validation against real processes, in a form that takes seconds; skipped where namespaces are not allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.validation.netns import unavailable
from benchmarks.validation.report import Comparison, kendall_tau

ROOT = Path(__file__).parent.parent.parent
TOLERANCE = (
    0.15  # the goal of the full series is 1 %; here any work on the machine disturbs a single run
)


def test_transfers_and_dispatches_take_the_simulated_time() -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    command = [sys.executable, "-m", "benchmarks.validation.smoke"]
    for _ in range(3):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
        )
        errors = json.loads(done.stdout)
        if max(abs(errors["transfer"]), abs(errors["dispatch"])) <= TOLERANCE:
            break
    assert errors["dispatches"] == 9
    assert abs(errors["transfer"]) <= TOLERANCE
    assert abs(errors["dispatch"]) <= TOLERANCE


def comparison(simulated_s: float, real_s: list[float]) -> Comparison:
    return Comparison(
        name="a",
        repetitions=2,
        round_mape=0.0,
        arrival_error=0.0,
        arrival_p95=0.0,
        round_spread=0.02,
        arrival_spread=0.0,
        outcomes_equal=1.0,
        late=(0, 0.0),
        time_to_updates_s=(simulated_s, real_s),
        unmatched=0.0,
        host_load=0.0,
        relay_late_ms=0.0,
        pairs=[],
    )


def test_pairs_within_the_spread_of_the_repetitions_are_ties() -> None:
    apart = [comparison(1.0, [1.0, 1.1]), comparison(2.0, [2.0, 2.1]), comparison(3.0, [2.9, 3.1])]
    assert kendall_tau(apart) == (1.0, 3)
    assert kendall_tau([comparison(1.0, [1.0, 2.0]), comparison(0.5, [1.5, 3.0]), *apart[2:]]) == (
        1.0,
        1,
    )
    assert kendall_tau([comparison(2.0, [1.0]), comparison(1.0, [2.0])]) == (-1.0, 1)


@pytest.mark.parametrize(
    ("name", "round_mape", "unmatched", "regime"),
    [
        ("sync-far-10-always", 0.009, 0.1, ""),
        ("sync-far-10-always", 0.011, 0.1, "not repeatable"),
        ("sync-far-10-always", 0.021, 0.1, "near ties"),
        ("sync-shared-10-always", 0.029, 0.0, ""),
        ("sync-shared-10-always", 0.031, 0.0, "few flows on a full link"),
        ("sync-far-10-always", 0.021, 0.0, "busy host"),
        ("ii-sync-10", 0.06, 0.1, "compute"),
    ],
)
def test_a_goal_that_is_missed_has_a_regime(
    name: str, round_mape: float, unmatched: float, regime: str
) -> None:
    """Goals: 1 % without shared links, 3 % with them, 5 % with training; deployments differ by 2 % themselves."""
    missed = replace(comparison(1.0, [1.0]), name=name, round_mape=round_mape, unmatched=unmatched)
    assert missed.regime == regime
