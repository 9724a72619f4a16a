"""Generalized FedAvg against its card: oracles O1 to O13, the paper's toy, its theorem, invariants."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.tasks.kinds.quadratic import QuadraticTask
from tests.methods.driver import FloatArray, Player, Round, close, play, quadratic
from tests.methods.test_participation import LOGS

NAME = "generalized_fedavg"


def o1() -> QuadraticTask:
    """F_n = (x - z_n)^2 / 2 with z = (1, 3), from 0."""
    return quadratic([1.0, 3.0])


ALTERNATING: list[Round] = [[0], [1]] * 3


def x_of(task: QuadraticTask, log: Any, period: int, eta: float, **options: Any) -> FloatArray:
    return play(NAME, task, log, every_rounds=period, amplification=eta, **options).x


# -- scalar oracles --------------------------------------------------------------------------------

PLAIN = [0, 0.1, 0.39, 0.451, 0.7059, 0.73531, 0.961779]


@pytest.mark.parametrize(
    ("period", "eta", "expected"),
    [
        (1, 1, PLAIN),
        (2, 1, PLAIN),
        (5, 1, PLAIN),
        (2, 10, [0, 0.1, 3.9, 3.61, 0.39, 0.451, 3.549]),
        (2, 5, [0, 0.1, 1.95, 1.855, 2.0475, 1.94275, 2.052375]),
        (2, 0.5, [0, 0.1, 0.195, 0.2755, 0.371475, 0.4343275, 0.531184875]),
        (1, 10, [0, 1, 3, 1, 3, 1, 3]),
        (4, 10, [0, 0.1, 0.39, 0.451, 7.059, 6.4531, 6.10779]),
    ],
)
def test_o1_alternating_clients(period: int, eta: float, expected: list[float]) -> None:
    close(x_of(o1(), ALTERNATING, period, eta), expected)


def test_o1_waiting_for_all() -> None:
    """Both clients from the frozen model, every 2 rounds."""
    for local in ("steps", "frozen"):
        close(play("wait", o1(), [[0, 1]] * 3, local=local).x, [0, 0.2, 0.38, 0.542])


def test_waiting_with_several_gradients() -> None:
    """Local steps move on; frozen gradients make one step with their mean."""
    task = quadratic([1.0, 3.0], [1.0, 2.0])
    steps = play("wait", task, [[0, 1]], steps=2, server_lr=0.5).x[1]
    close(steps, 0.5 * ((1 - 0.81) * 1 + (1 - 0.64) * 3) / 2)
    frozen = play("wait", task, [[0, 1]], steps=2, local="frozen").x[1]
    close(frozen, 0.1 * (1 * 1 + 2 * 3) / 2)


def o2(start: float = 1.0) -> QuadraticTask:
    """h = (1, 2, 4), z = (0, 1, 2); weights (1/2, 1/4, 1/4) as samples."""
    return quadratic([0.0, 1.0, 2.0], [1.0, 2.0, 4.0], start, samples=[2, 1, 1])


@pytest.mark.parametrize(
    ("eta", "expected"),
    [
        (1, [1, 1.065, 1.107575, 1.135461625, 1.153727364375]),
        (10, [1, 1.065, 2.07575, 1.76961625, -2.9907635625]),
    ],
)
def test_o2_weights(eta: float, expected: list[float]) -> None:
    close(x_of(o2(), [[0, 1, 2]] * 4, 2, eta, steps=2, weights="samples"), expected)


def test_o9_empty_rounds() -> None:
    log: list[Round] = [[0], [], [1], [0]]
    close(x_of(o1(), log, 2, 10, empty_rounds="count"), [0, 0.1, 1.0, 1.2, 2.8])
    close(x_of(o1(), log, 2, 10), [0, 0.1, 0.1, 3.9, 3.61])


# -- invariants (section 7.1) ----------------------------------------------------------------------


@settings(max_examples=12)
@given(LOGS, st.integers(1, 4), st.sampled_from(["uniform", "samples"]))
def test_without_amplification_it_is_fedavg_bit_for_bit(
    log: list[list[int]], period: int, weights: str
) -> None:
    """eta = 1 with any window, and windows longer than the run with any eta."""
    fedavg = play("fedavg", o2(), log, steps=2, weights=weights).x
    assert (x_of(o2(), log, period, 1, steps=2, weights=weights) == fedavg).all()
    assert (x_of(o2(), log, 10, 7, steps=2, weights=weights) == fedavg).all()
    assert (play(NAME, o2(), log, steps=2, weights=weights).x == fedavg).all()


@settings(max_examples=12)
@given(LOGS, st.floats(0.2, 5))
def test_windows_of_one_round_are_a_server_learning_rate(log: list[list[int]], eta: float) -> None:
    fedavg = play("fedavg", o2(), log, steps=2, weights="uniform", server_lr=eta).x
    close(x_of(o2(), log, 1, eta, steps=2), fedavg)


@settings(max_examples=12)
@given(LOGS, st.integers(1, 4), st.floats(0.2, 5), st.sampled_from(["skip", "count"]))
def test_the_window_sum_is_the_way_gone(
    log: list[list[int]], period: int, eta: float, empty: str
) -> None:
    """x - x_t0 = u within a window; eta u over a whole one."""
    player = Player(NAME, o2(), steps=2, every_rounds=period, amplification=eta, empty_rounds=empty)
    start, rounds = player.played.x[0], 0
    for clients in log:
        before = player.played.x[-1]
        u = player.played.learner.server["window_sum"].item()
        close(before - start, u)
        fedavg = play("fedavg", o2(before), [clients], steps=2, weights="uniform").x
        player.aggregate([player.dispatch(client) for client in clients])
        rounds += bool(clients) or empty == "count"
        after = player.played.x[-1]
        if rounds == period and (clients or empty == "count"):
            close(after - start, eta * (u + fedavg[1] - fedavg[0]))
            start, rounds = after, 0
        else:
            close(after, fedavg[1])


# -- windows in time, warm-up ----------------------------------------------------------------------


def timed(times: list[float], **params: Any) -> FloatArray:
    """O1 with alternating clients, a server update at each of these times."""
    player = Player(NAME, o1(), amplification=10.0, **params)
    for number, time_s in enumerate(times):
        player.aggregate([player.dispatch(number % 2)], time_s=time_s)
    return player.played.x


def test_windows_in_simulated_time() -> None:
    """Amplified at the first update at or after k x Theta: two updates a window here, whenever they come."""
    expected = [0, 0.1, 3.9, 3.61, 0.39, 0.451, 3.549]
    close(timed([0.1, 1.0, 1.5, 2.3, 2.9, 3.0], every=1.0), expected)
    close(timed([0.3, 0.6, 0.9, 1.2, 1.5, 1.8], every=0.6), expected)
    # A gap of several windows: one amplification, and the next window ends where it would have anyway.
    close(timed([0.1, 5.5, 5.9, 6.0], every=1.0), expected[:5])
    close(timed([0.1, 5.5, 5.9, 5.95], every=1.0)[-1], 3.549)


def test_one_availability_cycle_is_the_default() -> None:
    """A day, where the trace says nothing else."""
    close(timed([3600.0, 86_400.0, 86_401.0, 172_800.0]), [0, 0.1, 3.9, 3.61, 0.39])


def test_warm_up_ends_where_the_first_window_begins() -> None:
    """Three plain rounds, then windows of two; the same in time."""
    player = Player(NAME, o1(), amplification=10.0, every_rounds=2, warm_up=3)
    for client in (1, 0, 1, 0, 1):
        player.aggregate([player.dispatch(client)])
    x = player.played.x
    plain = play("fedavg", o1(), [[1], [0], [1], [0], [1]]).x
    close(x[:5], plain[:5])
    close(x[5], plain[3] + 10 * (plain[5] - plain[3]))
    in_time = Player(NAME, o1(), amplification=10.0, every=1.0, warm_up=3)
    for client, time_s in zip((1, 0, 1, 0, 1), (0.5, 0.6, 0.7, 1.6, 1.7), strict=True):
        in_time.aggregate([in_time.dispatch(client)], time_s=time_s)
    close(in_time.played.x, x)
