"""FedAU against its paper's algorithms, written out here."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import FloatArray, Part, Round, close, play
from tests.methods.problems import LOGS, START, end, q3


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
