"""The two small quadratic problems of the methods' tests, participation logs, and a comparison of iterates."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from fedsim.tasks.kinds.quadratic import QuadraticTask
from tests.methods.driver import Round, quadratic

LOG: list[Round] = [[0], [1], [0], [0, 1]]


def q2() -> Any:
    """f_1 = (x - 1)^2 / 2, f_2 = 3 (x + 1)^2 / 2 from 2; minimum at -0.5."""
    return quadratic([1.0, -1.0], [1.0, 3.0], 2.0)


A, B, START = np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0, -1.0]), 1.0


def q3(**more: Any) -> QuadraticTask:
    """f_i = a_i / 2 (x - b_i)^2 with a = (1, 2, 4), b = (0, 3, -1) from 1."""
    return quadratic(B.tolist(), A.tolist(), START, **more)


LOGS = st.lists(st.lists(st.integers(0, 2), unique=True, max_size=3), min_size=1, max_size=9)
DECAYED = {"optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 1.0}}


def end(client: int, w: float, lr: float, steps: int) -> float:
    """Where plain local steps lead."""
    return float(B[client] + (1 - lr * A[client]) ** steps * (w - B[client]))
