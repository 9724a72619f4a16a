"""Tiers by accuracy and credits: Algorithm 2 of TiFL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scheduling.selections.tifl_adaptive import (
    TiFLAdaptive,
    TiFLAdaptiveParams,
    probabilities,
)
from tests.composition.worlds import digits
from tests.scheduling.drawing import Port

pytestmark = pytest.mark.usefixtures("without_reports")

NAN = float("nan")


def adaptive(port: Port, **params: Any) -> TiFLAdaptive:
    """Two tiers of two clients, unless said otherwise."""
    return TiFLAdaptive(TiFLAdaptiveParams(**({"tiers": 2} | params)), port)  # type: ignore[arg-type]


def port_of_four(accuracies: list[float]) -> Port:
    """Clients 0 and 1 are fast, 2 and 3 slow."""
    port = Port(4, [1.0, 1.0, 5.0, 5.0])
    port.accuracies = accuracies
    return port


@pytest.mark.parametrize(
    ("accuracies", "credits", "expected"),
    [
        ([0.5, 0.2, 0.9], [1, 1, 1], [2 / 6, 3 / 6, 1 / 6]),
        ([0.5, 0.5, 0.1], [1, 1, 1], [2 / 6, 1 / 6, 3 / 6]),
        ([0.5, 0.2, 0.9], [1, 0, 1], [2 / 3, 0, 1 / 3]),
        ([0.5, 0.2, 0.9], [0, 0, 0], [2 / 6, 3 / 6, 1 / 6]),
        ([0.3], [1], [1]),
    ],
)
def test_probabilities_by_hand(
    accuracies: list[float], credits: list[int], expected: list[float]
) -> None:
    """Of n tiers with credits: n / D for the lowest accuracy, D = n (n + 1) / 2; equal ones in order."""
    assert probabilities(np.array(accuracies), np.array(credits) > 0) == pytest.approx(expected)


def test_probabilities_change_when_the_last_tier_has_not_improved() -> None:
    """Measured before draws 0, 2, 4 and 6; tier accuracies 0.6 and 0.3, then higher, then equal, then swapped."""
    port = port_of_four([0.5, 0.7, 0.2, 0.4])
    selection = adaptive(port, interval=2)
    chances = []
    for accuracies in ([0.5, 0.7, 0.2, 0.4], [0.6, 0.8, 0.3, 0.5], None, [0.0, 0.2, 0.1, 0.3]):
        port.accuracies = accuracies or port.accuracies
        for _ in range(2):
            (client,) = selection.draw(1)
            assert client in range(4)
        chances.append(selection._chances.tolist())
    assert chances[:2] == [[1.0, 1.0], [1.0, 1.0]]
    assert chances[2] == pytest.approx([1 / 3, 2 / 3])
    assert chances[3] == pytest.approx([2 / 3, 1 / 3])


def test_clients_without_test_samples_do_not_count() -> None:
    selection = adaptive(port_of_four([NAN, 0.7, 0.2, 0.4]))
    assert selection._tier_accuracies() == pytest.approx([0.7, 0.3])
    selection = adaptive(port_of_four([NAN, NAN, 0.2, 0.4]))
    assert selection._tier_accuracies() == pytest.approx([np.inf, 0.3])


def test_credits_run_out() -> None:
    """One draw of the fast tier and two of the slow one; then credits are ignored."""
    selection = adaptive(port_of_four([0.5] * 4), credits=[1, 2], interval=100)
    fast = [selection.draw(2)[0] < 2 for _ in range(3)]
    assert sum(fast) == 1
    further = [selection.draw(2)[0] < 2 for _ in range(40)]
    assert 5 < sum(further) < 35


def test_a_tier_without_credits_works_if_no_other_is_there() -> None:
    port = port_of_four([0.5] * 4)
    selection = adaptive(port, credits=1, interval=100)
    port.idle = np.array([0, 1])
    assert [len(selection.draw(2)) for _ in range(3)] == [2, 2, 2]
    port.idle = np.arange(4)
    assert set(selection.draw(2)) == {2, 3}


def test_a_tier_that_lost_its_probability_works_if_no_other_is_there() -> None:
    """The fast tier has no credits when the probabilities change, and is then the only one available."""
    port = port_of_four([0.5] * 4)
    selection = adaptive(port, credits=[0, 100], interval=1)
    assert [selection.draw(2)[0] >= 2 for _ in range(3)] == [True] * 3
    assert selection._chances.tolist() == [0.0, 1.0]
    port.idle = np.array([0, 1])
    assert set(selection.draw(2)) == {0, 1}


def test_credits_must_be_one_per_tier() -> None:
    with pytest.raises(UserError, match="3 credits for 2 tiers"):
        adaptive(port_of_four([0.5] * 4), credits=[1, 2, 3])


def world(test: str | None) -> dict[str, Any]:
    """Digits with tiers of four clients."""
    scenario = digits(
        server={"selection": {"name": "tifl_adaptive", "cohort": 2, "tiers": 3, "interval": 2}}
    )
    scenario["task"]["partition"] |= {} if test is None else {"test": test}
    return scenario


def test_clients_need_test_samples(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="own test samples, which this task lacks"):
        fedsim.run(world(None), tmp_path / "run")
    with pytest.raises(UserError, match="only simulates time"):
        fedsim.run(world("split"), tmp_path / "run", timing_only=True)
