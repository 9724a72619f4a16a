"""FedSUM-B: its limit of stability, and centralized SGD as its case of full participation."""

from __future__ import annotations

from tests.methods.driver import close, play
from tests.methods.problems import DECAYED, q2


def test_iterates_of_fedsum_b_with_weight_decay() -> None:
    """From 2 along the gradients at the received model, decay included."""
    x1 = 2 - 0.1 * ((2 - 1) + 2)
    x2 = x1 - 0.1 * ((x1 - 1 + x1) + (3 * (x1 + 1) + x1))
    close(play("fedsum_b", q2(), [[0], [0, 1]], steps=2, training=DECAYED).x[1:], [x1, x2])
