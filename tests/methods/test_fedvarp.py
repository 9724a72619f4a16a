"""FedVARP against its paper's algorithm, written out here."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from tests.methods.driver import close, play
from tests.methods.problems import LOGS, START, end, q2, q3


def test_fedvarp_remembers_gradients_or_changes() -> None:
    """Rates 0.1, 0.1 / sqrt 2, ...: what is remembered in the unit of changes is too large when it is used again."""
    training = {
        "optimizer": {"name": "sgd", "lr": 0.1},
        "lr_schedule": {"name": "inverse_sqrt", "scale": 1},
    }
    rates = [0.1 / np.sqrt(t + 1) for t in range(3)]
    log = [[0, 1], [0], [1]]
    for remembers in ("gradients", "changes"):
        a, c, latest, x, expected = (1.0, 3.0), (1.0, -1.0), [0.0, 0.0], 2.0, []
        for rate, clients in zip(rates, log, strict=True):
            unit = rate if remembers == "gradients" else 1.0
            fresh = {i: -rate * a[i] * (x - c[i]) / unit for i in clients}
            mean = sum(latest) / 2
            change = mean + sum(fresh[i] - latest[i] for i in clients) / len(clients)
            for i in clients:
                latest[i] = fresh[i]
            x += unit * change
            expected.append(x)
        played = play("fedvarp", q2(), log, training=training, remembers=remembers)
        close(played.x[1:], expected)


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
