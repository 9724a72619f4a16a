"""FedNova against its paper's equation, with momentum written out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.driver import close, play
from tests.methods.problems import START, A, B, q3


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
