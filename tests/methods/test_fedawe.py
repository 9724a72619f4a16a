"""FedAWE against its paper's algorithm, written out here."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import close, play
from tests.methods.problems import LOGS, START, end, q2, q3


def test_fedawe_measures_the_mean_of_all_clients_models() -> None:
    """From 2 with rate 0.1: client 0 moves to 1.9, then client 1 by twice 0.1 x 3 x 3, then both; their mean counts."""
    played = play("fedawe", q2(), [[0], [1], [0, 1]], evaluated="client_average")
    trained = [2 - 0.1, 2 - 2 * 0.9]
    newest = np.mean(
        [trained[0] - 2 * 0.1 * (trained[0] - 1), trained[1] - 0.1 * 3 * (trained[1] + 1)]
    )
    close(played.x[1:], [(trained[0] + 2) / 2, sum(trained) / 2, newest])
    close(played.memory("own")[:, 0], [newest] * 2)


@settings(max_examples=20)
@given(LOGS, st.floats(0.3, 1.5), st.sampled_from([None, 0.05]))
def test_fedawe(log: list[list[int]], server_lr: float, clip: float | None) -> None:
    """Xiang et al. (NeurIPS 2024), Algorithm 1."""
    client_models, last, x, xs = [START] * 3, [-1] * 3, START, [START]
    for t, clients in enumerate(log):
        if clients:
            moved = [
                server_lr * (t - last[i]) * (end(i, client_models[i], 0.1, 2) - client_models[i])
                for i in clients
            ]
            step = float(np.mean(moved))
            if clip is not None:
                step = float(np.clip(step, -clip, clip))
            x = float(np.mean([client_models[i] for i in clients])) + step
            for i in clients:
                client_models[i], last[i] = x, t
        xs.append(x)
    played = play("fedawe", q3(), log, steps=2, server_lr=server_lr, clip_norm=clip)
    close(played.x, xs)
    close(played.memory("own")[:, 0], client_models)
