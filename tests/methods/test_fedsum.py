"""FedSUM: the identity of its step, and iterates with weight decay."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import Player, close, play
from tests.methods.problems import DECAYED, LOG, LOGS, q2, q3


@settings(max_examples=20)
@given(LOGS, st.integers(1, 3))
def test_identity_of_fedsum(log: list[list[int]], steps: int) -> None:
    """x moves by eta_g (sum of the local changes + (|S| - 1) (eta_l K / N) y_old): card, invariant 4."""
    player = Player("fedsum", q3(), steps=steps, lr=0.05)
    for clients in log:
        before = player.played.learner.server
        x, y = before["model"].item(), before["merged"].item()
        h = player.played.memory("gradient")[:, 0]
        moved = (
            sum(local_end(client, x, y - h[client], 0.05, steps) - x for client in clients)
            + (len(clients) - 1) * (0.05 * steps / 3) * y
        )
        player.aggregate([player.dispatch(client) for client in clients])
        close(player.played.learner.server["model"].item(), x + moved)


def local_end(client: int, w: float, correction: float, lr: float, steps: int) -> float:
    """Where client ``client`` of q3 ends up."""
    a, b = (1.0, 2.0, 4.0)[client], (0.0, 3.0, -1.0)[client]
    for _ in range(steps):
        w -= lr / 3 * (a * (w - b) + correction)
    return w


def test_only_the_product_of_rates_does_not_hold_for_fedsum() -> None:
    base = play("fedsum", q2(), LOG, steps=2).x
    assert np.abs(play("fedsum", q2(), LOG, steps=2, lr=0.01, server_lr=10).x - base).max() > 1e-3


def test_the_first_local_step_of_a_newcomer_is_one_nth_of_fedavgs() -> None:
    """t = 0: y_i = 0, so that one round with one local step and eta_g = 1 moves x by 1/N of FedAvg's step."""
    fedavg = play("fedavg", q3(), [[0]]).x
    fedsum = play("fedsum", q3(), [[0]]).x
    close(fedsum[1] - fedsum[0], (fedavg[1] - fedavg[0]) / 3)


def test_iterates_of_fedsum_with_weight_decay() -> None:
    """Two steps per round, written out with the gradients a (w - c) + w of the decayed objective."""
    a, c, h, y, x = (1.0, 3.0), (1.0, -1.0), [0.0, 0.0], 0.0, 2.0
    log = [[0], [0, 1], [1], [0, 1]]
    expected = []
    for clients in log:
        received, start, old = y, x, list(h)
        for i in clients:
            w, gradients = start, []
            for _ in range(2):
                gradients.append(a[i] * (w - c[i]) + w)
                w -= 0.1 / 2 * (gradients[-1] + received - old[i])
            h[i] = sum(gradients) / 2
            y += h[i] - old[i]
        x -= 0.1 * 2 / 2 * y
        expected.append(x)
    close(play("fedsum", q2(), log, steps=2, training=DECAYED).x[1:], expected)
