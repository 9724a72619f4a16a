"""Limited clients: the amounts of work that they can do, and when these are drawn again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fedsim.scenario.training import LimitedWork
from fedsim.simulation.drawn_work import DrawnWork


def drawn(clients: int, unit: int = 1, **params: Any) -> DrawnWork:
    return DrawnWork(LimitedWork(**params), [unit] * clients, seed=0)


def test_a_limited_client_does_its_epochs_less_tau_plus_one() -> None:
    """5 epochs of 7 steps and tau uniform from 2 to 4: 4, 3 or 2 epochs, each for a third of the clients."""
    work = drawn(6000, unit=7, share=1.0, tau_min=2, tau_max=4)
    counts = Counter(work.steps(client, 0, 35) for client in range(6000))
    assert set(counts) == {14, 21, 28}
    assert all(count / 6000 == pytest.approx(1 / 3, abs=0.02) for count in counts.values())


def test_the_share_of_limited_clients_is_exact_and_lasts() -> None:
    work = drawn(1000, share=0.3, tau_min=5, tau_max=5)
    limited = [client for client in range(1000) if work.steps(client, 0, 10) == 6]
    assert len(limited) == 300
    assert limited == [client for client in range(1000) if work.steps(client, 9, 10) == 6]


@pytest.mark.parametrize(("redraw", "varies"), [("never", False), ("amount", True)])
def test_amounts_are_drawn_once_or_per_dispatch(redraw: str, varies: bool) -> None:
    work = drawn(1, share=1.0, redraw=redraw)
    amounts = {work.steps(0, sequence, 20) for sequence in range(50)}
    assert (len(amounts) > 1) is varies
    assert amounts <= set(range(2, 21))


def test_limited_clients_are_drawn_anew_with_both() -> None:
    work = drawn(1, share=0.5, tau_min=2, tau_max=2, redraw="both")
    shares = [work.steps(0, sequence, 10) < 10 for sequence in range(4000)]
    assert sum(shares) / 4000 == pytest.approx(0.5, abs=0.03)


def test_no_work_can_be_cut_below_one_step() -> None:
    work = drawn(100, share=1.0, tau_min=50, tau_max=50)
    assert {work.steps(client, 0, 3) for client in range(100)} == {1}
