"""How much work clients do and how it fails: crashes and lost uploads in numbers, on plain and on shared links."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import expon, kstest

from fedsim.scenario.training import LimitedWork
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.workload import Workloads, drawn_work
from fedsim.vocabulary.outcomes import Outcome
from tests.simulation.harness import Book, online, simulate

CLIENTS = 1500


def one_round(**changes: Any) -> Book:
    """All clients once: 1 s down, ten steps of 6 minutes, 1 s up."""
    world: dict[str, Any] = {
        "step_s": [360.0] * CLIENTS,
        "selection": {"name": "uniform", "cohort": CLIENTS},
        "rounds": 1,
    }
    return simulate(**{**world, **changes})


@pytest.mark.parametrize("shared", [False, True])
def test_crashes_come_at_their_rate(shared: bool) -> None:
    """Of compute time of 3,600 s a share 1 - exp(-rate x time) crashes, at exponential times cut at its end."""
    rate_per_hour, work_s = 1.5, 3600.0
    book = one_round(failures={"crash_rate": rate_per_hour}, shared=shared)
    assert len(book.rows) == CLIENTS
    crashed = [row for row in book.rows if row["outcome"] == Outcome.DROPPED]
    share = 1 - np.exp(-rate_per_hour * work_s / 3600)
    spread = (share * (1 - share) / CLIENTS) ** 0.5
    assert len(crashed) / CLIENTS == pytest.approx(share, abs=4 * spread)
    times = np.array([row["ended"] - 1 for row in crashed])
    assert times.max() < work_s
    whole = expon(scale=3600 / rate_per_hour)
    assert kstest(times, lambda t: whole.cdf(t) / whole.cdf(work_s)).pvalue > 0.01
    for row in crashed:
        assert row["steps_done"] == min(10, max(0, int((row["ended"] - 1) // 360)))
        assert (row["bytes_down"], row["bytes_up"]) == (1e6, 0)
    others = [row for row in book.rows if row["outcome"] != Outcome.DROPPED]
    assert {row["arrived"] for row in others} == {1 + work_s + 1}


def test_crashes_count_compute_time_alone() -> None:
    """A download of 100 s instead of 1 s, or an hour offline amid the steps, postpones a crash by as much."""
    failures = {"crash_rate": 1.5}
    plain = {row["client"]: row["ended"] for row in one_round(failures=failures).rows}
    slow = one_round(failures=failures, down_bps=8e4)
    assert {row["client"]: row["ended"] - 99 for row in slow.rows} == pytest.approx(plain)
    away = one_round(
        failures=failures,
        availability=online(*[[(0.0, 1801.0), (5401.0, 1e6)]] * CLIENTS),
        on_disconnect="pause",
    )
    assert {row["client"]: row["ended"] for row in away.rows} == pytest.approx(
        {client: end + 3600 * (end > 1801) for client, end in plain.items()}
    )


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_lost_uploads_are_sent_again_and_cost_bytes_time_and_energy(retries: int) -> None:
    loss = 0.4
    book = one_round(
        step_s=[1.0] * CLIENTS, failures={"upload_loss": loss, "upload_retries": retries}
    )
    sent = np.array([row["bytes_up"] / 1e6 for row in book.rows])
    arrived = np.array([row["outcome"] == Outcome.AGGREGATED for row in book.rows])
    attempts = np.arange(1, retries + 2)
    # The k-th attempt is made with probability loss^(k-1); the last one is the last whatever comes of it.
    for attempt in attempts:
        made = loss ** (attempt - 1)
        spread = (made * (1 - made) / CLIENTS) ** 0.5
        assert np.mean(sent >= attempt) == pytest.approx(made, abs=4 * spread + 1e-12)
    assert set(sent) <= set(attempts.tolist())
    lost = loss ** (retries + 1)
    spread = (lost * (1 - lost) / CLIENTS) ** 0.5
    assert 1 - arrived.mean() == pytest.approx(lost, abs=4 * spread)
    assert (sent[~arrived] == retries + 1).all()
    for row in book.rows:
        seconds = row["bytes_up"] / 1e6
        assert row["ended"] == pytest.approx(1 + 10 + seconds)
        assert row["energy"] == pytest.approx(1 * 1 + 2 * 10 + 3 * seconds)


def test_which_workload_a_dispatch_has() -> None:
    usual, prologue, first = (object() for _ in range(3))
    dispatches = {
        (sequence, version): Dispatch(0, 0, sequence, version, 0, 1, 0, 0)
        for sequence in (0, 1)
        for version in (0, 1)
    }

    def chosen(first: Any = None, **others: Any) -> list[Any]:
        # Client 0 trains the second of two parts.
        workloads = Workloads(
            [None, usual],  # type: ignore[list-item]
            first=first and [None, first],
            of_client=[1],
            **others,
        )
        return [workloads.of(dispatch) for dispatch in dispatches.values()]

    # In order: first dispatch of version 0 and of version 1, second dispatch of version 0 and of version 1.
    assert chosen() == [usual] * 4
    assert chosen(first=first) == [first, first, usual, usual]
    assert chosen(prologue=prologue) == [prologue, usual, prologue, usual]
    assert chosen(prologue=prologue, first=first) == [prologue, first, prologue, usual]


# -- limited clients ---------------------------------------------------------------------------------------------------


def drawn(clients: int, unit: int = 1, **params: Any) -> Callable[[int, int, int], int]:
    return drawn_work(LimitedWork(**params), [unit] * clients, seed=0)


def test_a_limited_client_does_its_epochs_less_tau_plus_one() -> None:
    """5 epochs of 7 steps and tau uniform from 2 to 4: 4, 3 or 2 epochs, each for a third of the clients."""
    work = drawn(6000, unit=7, share=1.0, tau_min=2, tau_max=4)
    counts = Counter(work(client, 0, 35) for client in range(6000))
    assert set(counts) == {14, 21, 28}
    assert all(count / 6000 == pytest.approx(1 / 3, abs=0.02) for count in counts.values())


def test_the_share_of_limited_clients_is_exact_and_lasts() -> None:
    work = drawn(1000, share=0.3, tau_min=5, tau_max=5)
    limited = [client for client in range(1000) if work(client, 0, 10) == 6]
    assert len(limited) == 300
    assert limited == [client for client in range(1000) if work(client, 9, 10) == 6]


@pytest.mark.parametrize(("redraw", "varies"), [("never", False), ("amount", True)])
def test_amounts_are_drawn_once_or_per_dispatch(redraw: str, varies: bool) -> None:
    work = drawn(1, share=1.0, redraw=redraw)
    amounts = {work(0, sequence, 20) for sequence in range(50)}
    assert (len(amounts) > 1) is varies
    assert amounts <= set(range(2, 21))


def test_limited_clients_are_drawn_anew_with_both() -> None:
    work = drawn(1, share=0.5, tau_min=2, tau_max=2, redraw="both")
    shares = [work(0, sequence, 10) < 10 for sequence in range(4000)]
    assert sum(shares) / 4000 == pytest.approx(0.5, abs=0.03)


def test_no_work_can_be_cut_below_one_step() -> None:
    work = drawn(100, share=1.0, tau_min=50, tau_max=50)
    assert {work(client, 0, 3) for client in range(100)} == {1}
