"""FedSUM: the identity of its step, and iterates with weight decay."""

from __future__ import annotations

from tests.methods.driver import close, play
from tests.methods.problems import DECAYED, q2


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
