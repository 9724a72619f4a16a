"""Turns, lap after lap."""

from __future__ import annotations

import numpy as np

from fedsim.scheduling.turns import Turns


def test_a_turn_that_comes_twice_in_a_draw_is_kept() -> None:
    laps = [np.array([0, 1, 2]), np.array([2, 0, 1])]
    turns = Turns(lambda lap: laps[lap % 2])
    everybody = np.arange(3)
    assert turns.take(2, everybody) == [0, 1]
    # 2 ends the first lap and begins the second.
    assert turns.take(2, everybody) == [2, 0]
    assert turns.take(2, everybody) == [2, 1]
    assert turns.take(5, everybody) == [0, 1, 2]
    assert turns.take(1, np.empty(0, dtype=np.int64)) == []
