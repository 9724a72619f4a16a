"""FedAU, FedAWE, MIFA, FedVARP, FedNova and SCAFFOLD against their papers' equations, written out here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.tasks.kinds.quadratic import QuadraticTask
from tests.methods.driver import FloatArray, Part, Round, play, quadratic

A, B, START = np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0, -1.0]), 1.0
LOGS = st.lists(st.lists(st.integers(0, 2), unique=True, max_size=3), min_size=1, max_size=9)
DECAY = {"lr_schedule": {"name": "inverse_sqrt", "scale": 10}}


def q3(**more: Any) -> QuadraticTask:
    return quadratic(B.tolist(), A.tolist(), START, **more)


def end(client: int, w: float, lr: float, steps: int) -> float:
    """Where plain local steps lead."""
    return float(B[client] + (1 - lr * A[client]) ** steps * (w - B[client]))


def close(value: Any, expected: Any, rel: float = 1e-10) -> None:
    np.testing.assert_allclose(value, expected, rtol=rel, atol=1e-13)


# -- FedAU -----------------------------------------------------------------------------------------


def fedau(log: list[list[int]], cutoff: int | None, server_lr: float = 1.0) -> FloatArray:
    """Wang and Ji (ICLR 2024), Algorithms 1 and 2: counters advanced round by round."""
    x, xs = START, [START]
    counted, intervals, omega = [0] * 3, [[] for _ in range(3)], [1.0] * 3  # type: ignore[var-annotated]
    for clients in log:
        if clients:
            x += server_lr * sum(omega[i] * (end(i, x, 0.1, 2) - x) for i in clients) / 3
        for i in range(3):
            counted[i] += 1
            if i in clients or counted[i] == cutoff:
                intervals[i].append(counted[i])
                counted[i], omega[i] = 0, float(np.mean(intervals[i]))
        xs.append(x)
    return np.array(xs)


@settings(max_examples=20)
@given(LOGS, st.sampled_from([None, 1, 2, 3, 50]))
def test_fedau(log: list[list[int]], cutoff: int | None) -> None:
    x = play("fedau", q3(), log, steps=2, cutoff=cutoff, server_lr=0.7).x
    close(x, fedau(log, cutoff, 0.7))


def test_fedau_by_hand() -> None:
    """Client 1 comes in rounds 0, 3 and 4: intervals 1 and 3, weights 1, 1 and 2; with a cut-off of 2: 1, 1.5, 4/3."""
    log: list[Round] = [[0, 1], [0], [0], [0, 1], [0, 1]]
    for cutoff, weights in ((50, (1, 1, 2)), (2, (1, 1.5, 4 / 3))):
        x = play("fedau", q3(), log, cutoff=cutoff).x
        for t, weight in zip((0, 3, 4), weights, strict=True):
            step = x[t + 1] - x[t] - (end(0, x[t], 0.1, 1) - x[t]) / 3
            close(step, weight * (end(1, x[t], 0.1, 1) - x[t]) / 3, 1e-9)


def test_fedau_counts_draws() -> None:
    """A client drawn twice counts twice."""
    x = play("fedau", q3(), [[Part(0, times=2), 1]]).x
    close(x[1], START + (2 * (end(0, 1, 0.1, 1) - 1) + end(1, 1, 0.1, 1) - 1) / 3)


# -- FedAWE ----------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(LOGS, st.floats(0.3, 1.5), st.sampled_from([None, 0.05]))
def test_fedawe(log: list[list[int]], server_lr: float, clip: float | None) -> None:
    """Xiang et al. (NeurIPS 2024), Algorithm 1."""
    own, last, x, xs = [START] * 3, [-1] * 3, START, [START]
    for t, clients in enumerate(log):
        if clients:
            moved = [server_lr * (t - last[i]) * (end(i, own[i], 0.1, 2) - own[i]) for i in clients]
            step = float(np.mean(moved))
            if clip is not None:
                step = float(np.clip(step, -clip, clip))
            x = float(np.mean([own[i] for i in clients])) + step
            for i in clients:
                own[i], last[i] = x, t
        xs.append(x)
    played = play("fedawe", q3(), log, steps=2, server_lr=server_lr, clip_norm=clip)
    close(played.x, xs)
    close(played.memory("own")[:, 0], own)


# -- MIFA and FedVARP ------------------------------------------------------------------------------


@settings(max_examples=20)
@given(LOGS, st.sampled_from(["gradients", "changes"]))
def test_mifa(log: list[list[int]], remembers: str) -> None:
    """Gu et al. (NeurIPS 2021), Algorithm 1, with a decaying learning rate: G_i = (w - w_i) / eta of its time."""
    x, xs, table = START, [START], [0.0] * 3
    for t, clients in enumerate(log):
        lr = 0.1 / (t / 10 + 1) ** 0.5
        for i in clients:
            change = end(i, x, lr, 2) - x
            table[i] = change / lr if remembers == "gradients" else change
        x += float(np.mean(table)) * (lr if remembers == "gradients" else 1)
        xs.append(x)
    played = play("mifa", q3(), log, steps=2, remembers=remembers, training=DECAY)
    close(played.x, xs)
    close(played.memory("latest")[:, 0], table)


@settings(max_examples=20)
@given(LOGS)
def test_fedvarp(log: list[list[int]]) -> None:
    """Jhunjhunwala et al. (UAI 2022), Algorithm 2."""
    x, xs, table = START, [START], [0.0] * 3
    for clients in log:
        if clients:
            changes = {i: end(i, x, 0.1, 2) - x for i in clients}
            fresh = np.mean([changes[i] - table[i] for i in clients])
            x += 0.7 * float(fresh + np.mean(table))
            for i in clients:
                table[i] = changes[i]
        xs.append(x)
    close(play("fedvarp", q3(), log, steps=2, server_lr=0.7).x, xs)


def test_tables_hold_a_client_drawn_twice_once() -> None:
    """The average counts it twice, the table once."""
    twice: list[Round] = [[Part(0, times=2), 1], [2]]
    for method, stored in (("fedvarp", 1.0), ("mifa", 10.0)):
        played = play(method, q3(), twice)
        expected = [
            stored * (end(i, played.x[v], 0.1, 1) - played.x[v])
            for i, v in ((0, 0), (1, 0), (2, 1))
        ]
        close(played.memory("latest")[:, 0], expected)
        close(played.state("mean")[-1], np.mean(expected))
    x = play("fedvarp", q3(), twice).x
    close(x[1] - x[0], (2 * (end(0, 1, 0.1, 1) - 1) + end(1, 1, 0.1, 1) - 1) / 3)


# -- SCAFFOLD --------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(LOGS, st.sampled_from([1, 2]), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_scaffold(log: list[list[int]], uplink: int, steps: list[int]) -> None:
    """Karimireddy et al. (ICML 2020), Algorithm 1, option II, with clients that do different numbers of steps."""
    x, xs, c, control = START, [START], 0.0, [0.0] * 3
    for clients in log:
        if clients:
            moves, changes = [], []
            for i in clients:
                w = x
                for _ in range(steps[i]):
                    w -= 0.1 * (A[i] * (w - B[i]) - control[i] + c)
                new = control[i] - c + (x - w) / (steps[i] * 0.1)
                changes.append(new - control[i])
                control[i] = new
                moves.append(w - x)
            x += 0.7 * float(np.mean(moves))
            c += sum(changes) / 3
        xs.append(x)
    played = play("scaffold", q3(), log, steps=steps, uplink=uplink, server_lr=0.7)
    close(played.x, xs)
    close(played.memory("control")[:, 0], control)
    close(played.learner.server["control"], c)


def test_two_vectors_up_work_with_momentum() -> None:
    momentum = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.5}}
    assert np.isfinite(play("scaffold", q3(), [[0, 1]], training=momentum).x).all()


# -- FedNova ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("nesterov", [False, True])
def test_fednova(weights: str, momentum: float, nesterov: bool) -> None:
    """Wang et al. (NeurIPS 2020), equation 6; a_i of momentum from section 4, of Nesterov's form by its definition."""
    if nesterov and not momentum:
        return
    steps, samples = [1, 3, 5], np.array([2, 1, 1])
    training = {
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": momentum, "nesterov": nesterov}
    }
    changes, lengths = [], []
    for i, count in enumerate(steps):
        w, v, reach, length = START, 0.0, 0.0, 0.0
        for _ in range(count):
            g = A[i] * (w - B[i])
            v, reach = momentum * v + g, momentum * reach + 1
            w -= 0.05 * (g + momentum * v if nesterov else v)
            length += 1 + momentum * reach if nesterov else reach
        changes.append(w - START)
        lengths.append(length)
    if momentum and not nesterov:
        closed = [
            (count - momentum * (1 - momentum**count) / (1 - momentum)) / (1 - momentum)
            for count in steps
        ]
        close(lengths, closed)
    p = samples / samples.sum() if weights == "samples" else np.full(3, 1 / 3)
    a, delta = np.array(lengths), np.array(changes)
    x = play(
        "fednova",
        q3(samples=samples.tolist()),
        [[0, 1, 2]],
        steps=steps,
        weights=weights,
        training=training,
    ).x
    close(x[1], START + (p @ a) * (p @ (delta / a)))


# -- reductions ------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3))
def test_full_participation_is_fedavg(rounds: int, steps: int) -> None:
    """FedAU, FedAWE, MIFA, FedVARP, FedNova, waiting; SCAFFOLD with one local step."""
    log = [[0, 1, 2]] * rounds
    fedavg = play("fedavg", q3(), log, steps=steps, weights="uniform").x
    for method in ("fedau", "fedawe", "mifa", "fedvarp", "wait"):
        close(play(method, q3(), log, steps=steps).x, fedavg)
    bits = play("fednova", q3(), log, steps=steps, weights="uniform").x
    assert (bits == fedavg).all()
    assert (play("wait", q3(), log, steps=steps).x == fedavg).all()
    if steps == 1:
        close(play("scaffold", q3(), log).x, fedavg)


def test_one_client_is_local_sgd() -> None:
    """N = 1, every round, eta_g = 1: K-step SGD, whatever the method."""
    task = quadratic([1.0], [2.0], 3.0)
    expected = [1 + 2 * 0.8 ** (3 * t) for t in range(5)]
    for method in (
        "fedavg",
        "fedsum",
        "fedsum_cr",
        "scaffold",
        "mifa",
        "fedvarp",
        "fedau",
        "fedawe",
        "fednova",
        "fedlga",
        "rescale",
        "wait",
    ):
        close(play(method, task, [[0]] * 4, steps=3).x, expected)
