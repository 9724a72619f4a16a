"""MIFA against its paper's algorithm, written out here."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import close, play
from tests.methods.problems import LOGS, START, end, q3

DECAY = {"lr_schedule": {"name": "inverse_sqrt", "scale": 10}}


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
