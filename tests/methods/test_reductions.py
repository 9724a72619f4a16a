"""Cases in which several methods are the same: full participation, a single client, a client drawn twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import Part, Round, close, play
from tests.methods.problems import end, q3


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
