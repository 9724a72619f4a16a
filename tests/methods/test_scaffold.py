"""SCAFFOLD against its paper's algorithm, written out here."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import close, play
from tests.methods.problems import LOGS, START, A, B, q3


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
