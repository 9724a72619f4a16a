"""Generalized FedAvg against its card: oracles O1 to O13, the paper's toy, its theorem, invariants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.tasks.kinds.quadratic import QuadraticParams, QuadraticTask
from tests.methods.driver import FloatArray, Player, Round, close, play, quadratic
from tests.methods.problems import LOGS

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


def test_o1_window_map() -> None:
    """Fixed point 39/19 whatever eta; contraction 1 - 0.19 eta; stable below 10.526."""
    started = quadratic([1.0, 3.0], 1.0, 39 / 19)
    for eta in (1, 5, 10):
        close(x_of(started, ALTERNATING, 2, eta)[::2], [39 / 19] * 4)
        distances = x_of(o1(), ALTERNATING, 2, eta)[::2] - 39 / 19
        close(distances[1:] / distances[:-1], 1 - 0.19 * eta, 1e-9)
    close(x_of(started, ALTERNATING[:3], 1, 1), [39 / 19, 37 / 19, 39 / 19, 37 / 19])
    for eta, grows in ((10.4, False), (10.65, True)):
        distances = np.abs(x_of(o1(), [[0], [1]] * 40, 2, eta)[::2] - 39 / 19)
        assert (distances[-1] > distances[0]) == grows


def o2() -> QuadraticTask:
    """h = (1, 2, 4), z = (0, 1, 2), from 1; weights (1/2, 1/4, 1/4) as samples."""
    return quadratic([0.0, 1.0, 2.0], [1.0, 2.0, 4.0], 1.0, samples=[2, 1, 1])


@pytest.mark.parametrize(
    ("eta", "expected"),
    [
        (1, [1, 1.065, 1.107575, 1.135461625, 1.153727364375]),
        (10, [1, 1.065, 2.07575, 1.76961625, -2.9907635625]),
    ],
)
def test_o2_weights(eta: float, expected: list[float]) -> None:
    close(x_of(o2(), [[0, 1, 2]] * 4, 2, eta, steps=2, weights="samples"), expected)


PAIRS: list[Round] = [[0, 1], [1, 2], [0, 2]]


def test_o3_pairs_in_turn() -> None:
    options = {"steps": 2, "lr": 0.01}
    plain = x_of(o2(), PAIRS * 2, 3, 1, **options)
    np.testing.assert_allclose(
        plain,
        [1, 0.99005, 1.02983705, 1.057620559, 1.0459563474, 1.0824449229, 1.1076427549],
        rtol=0,
        atol=5.1e-11,
    )
    ten = x_of(o2(), PAIRS * 2, 3, 10, **options)
    np.testing.assert_allclose(
        ten[3:], [1.5762055899, 1.5491134736, 1.5559157787, 1.3925748723], rtol=0, atol=5.1e-11
    )
    three = x_of(o2(), PAIRS * 2, 3, 3, **options)
    np.testing.assert_allclose(three[[3, 6]], [1.172861677, 1.2773380863], rtol=0, atol=5.1e-10)


@pytest.mark.parametrize(
    ("lr", "limit", "stable"),
    [(0.1, 1.487871817, 2.538), (0.01, 1.436953168, 15.17), (0.001, 1.429426747, 143.7)],
)
def test_o3_bias_follows_the_local_rate_not_the_amplification(
    lr: float, limit: float, stable: float
) -> None:
    """The window map's fixed point (10/7 is the optimum), and where amplification becomes unstable."""
    first, second = x_of(o2(), PAIRS * 2, 3, 1, steps=2, lr=lr)[[3, 6]]
    contraction = (second - first) / (first - 1)
    close(1 + (first - 1) / (1 - contraction), limit, 1e-8)
    assert 2 / (1 - contraction) == pytest.approx(stable, rel=3e-4)
    at_limit = quadratic([0.0, 1.0, 2.0], [1.0, 2.0, 4.0], limit)
    ends = x_of(at_limit, PAIRS * 3, 3, 0.9 * stable, steps=2, lr=lr)[3::3]
    np.testing.assert_allclose(ends, limit, atol=1e-8)


def test_o5_one_client_is_lookahead() -> None:
    close(x_of(quadratic([3.0]), [[0]] * 4, 2, 0.5), [0, 0.3, 0.285, 0.5565, 0.542925])


def test_o7_linear_objectives() -> None:
    """The deviation of a window from the ideal, squared, is the participation term itself: 0.5625."""
    task = QuadraticTask(QuadraticParams(slopes=[3.0, 0.0, -3.0]))
    log: list[Round] = [[0], [1, 2]]
    close(x_of(task, log, 2, 1, steps=2), [0, -0.6, -0.3])
    ten = x_of(task, log, 2, 10, steps=2)
    close(ten, [0, -0.6, -3.0])
    close((ten[2] / (0.1 * 10 * 2 * 2)) ** 2, 0.5625)


def test_o9_empty_rounds() -> None:
    log: list[Round] = [[0], [], [1], [0]]
    close(x_of(o1(), log, 2, 10, empty_rounds="count"), [0, 0.1, 1.0, 1.2, 2.8])
    close(x_of(o1(), log, 2, 10), [0, 0.1, 0.1, 3.9, 3.61])


def test_o10_variance_of_a_window() -> None:
    """Gradient noise 0.5, eta 10: mean 3.8, variance 0.22625; 40,000 dimensions are as many runs."""
    runs = 40_000
    task = quadratic([[1.0] * runs, [3.0] * runs], noise_std=0.5)
    task.optimum = lambda: torch.zeros(runs)  # type: ignore[method-assign]
    ends = play(NAME, task, [[0, 1]] * 2, every_rounds=2, amplification=10.0).models[2]
    assert ends.mean() == pytest.approx(3.8, abs=4 * np.sqrt(0.22625 / runs))
    assert ends.var() == pytest.approx(0.22625, rel=4 * np.sqrt(2 / runs))


def test_o13_taking_part_once_is_not_enough() -> None:
    """3 rounds of client 1, then 1 of client 2: the limit is 1.5 (1.500075 for gamma 1e-4), not 2."""
    task, cycle = o1(), [[0], [0], [0], [1]]
    contraction = (1 - 1e-4) ** 4
    # The amplification that jumps to the fixed point of the window at once.
    x = x_of(task, cycle * 2, 4, 1 / (1 - contraction), lr=1e-4)
    assert x[4] == pytest.approx(1.500075, abs=1e-6)
    close(x[8], x[4], 1e-9)


# -- the paper's toy (App. B.1) --------------------------------------------------------------------


def toy() -> QuadraticTask:
    return quadratic([[-1.0, 0.0], [1.0, 0.0], [0.0, 3**0.5]], 1.0, [1.0, 2.0])


TURNS: list[Round] = [[0], [1], [2]]


@pytest.mark.parametrize(
    ("lr", "eta", "third", "sixth", "last", "distance"),
    [
        (0.05, 1, (0.859750, 1.801353), (0.739503, 1.631037), (0.472229, 1.252474), 0.823889),
        (0.05, 2, (0.719500, 1.602705), (0.519013, 1.318739), (0.200085, 0.867016), 0.352052),
        (0.05, 5, (0.298750, 1.006763), (0.097579, 0.721828), (0.018563, 0.609911), 0.037480),
        (0.05, 10, (-0.402500, 0.013525), (0.195316, 0.860260), (0.002815, 0.587607), 0.010636),
        (0.05, 15, (-1.103750, -0.979712), (1.293210, 2.415297), (-1.871516, -2.067161), 3.239755),
        (0.10, 1, (0.738000, 1.631205), (0.547002, 1.362354), (0.232264, 0.919324), 0.413391),
        (0.25, 1, (0.468750, 1.276763), (0.244629, 0.971647), (0.093361, 0.765713), 0.210230),
        (0.50, 1, (0.250000, 1.116025), (0.156250, 1.005529), (0.142883, 0.989774), 0.436473),
    ],
)
def test_the_toy(lr: float, eta: float, third: Any, sixth: Any, last: Any, distance: float) -> None:
    x = play(NAME, toy(), TURNS * 5, lr=lr, every_rounds=3, amplification=eta).models
    np.testing.assert_allclose(x[[3, 6, 15]], [third, sixth, last], rtol=0, atol=5.1e-7)
    optimum = np.array([0.0, 1 / 3**0.5])
    assert np.linalg.norm(x[15] - optimum) == pytest.approx(distance, abs=5.1e-7)
    if lr == 0.05:
        np.testing.assert_allclose(x[1:3], [(0.9, 1.9), (0.905, 1.805)], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("lr", "distance"), [(0.05, 0.034184), (0.1, 0.070143), (0.25, 0.189832), (0.5, 0.436436)]
)
def test_where_the_toy_ends(lr: float, distance: float) -> None:
    """The bias depends on gamma, not on eta."""
    a = 1 - lr
    centers = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 3**0.5]])
    fixed = (a**2 * centers[0] + a * centers[1] + centers[2]) / (1 + a + a**2)
    assert np.linalg.norm(fixed - [0, 1 / 3**0.5]) == pytest.approx(distance, abs=5.1e-7)
    started = quadratic(centers.tolist(), 1.0, fixed.tolist())
    for eta in (1.0, 1.1):
        x = play(NAME, started, TURNS * 2, lr=lr, every_rounds=3, amplification=eta).models
        close(x[[3, 6]], [fixed, fixed])


# -- invariants (section 7.1) ----------------------------------------------------------------------


@settings(max_examples=20)
@given(LOGS, st.integers(1, 4), st.sampled_from(["uniform", "samples"]))
def test_without_amplification_it_is_fedavg_bit_for_bit(
    log: list[list[int]], period: int, weights: str
) -> None:
    """eta = 1 with any window, and windows longer than the run with any eta."""
    fedavg = play("fedavg", o2(), log, steps=2, weights=weights).x
    assert (x_of(o2(), log, period, 1, steps=2, weights=weights) == fedavg).all()
    assert (x_of(o2(), log, 10, 7, steps=2, weights=weights) == fedavg).all()
    assert (play(NAME, o2(), log, steps=2, weights=weights).x == fedavg).all()


@settings(max_examples=20)
@given(LOGS, st.floats(0.2, 5))
def test_windows_of_one_round_are_a_server_learning_rate(log: list[list[int]], eta: float) -> None:
    fedavg = play("fedavg", o2(), log, steps=2, weights="uniform", server_lr=eta).x
    close(x_of(o2(), log, 1, eta, steps=2), fedavg)


@settings(max_examples=20)
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
        fedavg = play("fedavg", moved(before), [clients], steps=2, weights="uniform").x
        player.aggregate([player.dispatch(client) for client in clients])
        rounds += bool(clients) or empty == "count"
        after = player.played.x[-1]
        if rounds == period and (clients or empty == "count"):
            close(after - start, eta * (u + fedavg[1] - fedavg[0]))
            start, rounds = after, 0
        else:
            close(after, fedavg[1])


def moved(start: float) -> QuadraticTask:
    """The problem of O2 from another start."""
    return quadratic([0.0, 1.0, 2.0], [1.0, 2.0, 4.0], start)


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
