"""Three clients with coupled coordinates, the first two shared and the last one personal: played, and written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.methods.driver import Part, Player, quadratic

FloatArray = npt.NDArray[np.float64]
SAMPLES = np.array([1.0, 2.0, 5.0])
CENTERS = np.array([[1.0, 2.0, 0.0], [-1.0, 0.0, 1.0], [2.0, -1.0, 3.0]])
# Symmetric matrices that couple all coordinates: u is the first two, v the last.
CURVATURES = np.array(
    [
        [[2.0, 0.5, 0.5], [0.5, 1.0, 0.25], [0.5, 0.25, 1.5]],
        [[1.0, 0.0, 0.5], [0.0, 2.0, -0.5], [0.5, -0.5, 1.0]],
        [[1.5, -0.5, 0.0], [-0.5, 1.0, 0.5], [0.0, 0.5, 2.0]],
    ]
)
START = np.array([0.5, -0.5, 1.0])
RATE = 0.1
LOG = [[(0, 3), (1, 2), (2, 1)], [(2, 3)], [(1, 1), (0, 3)], [(0, 2), (2, 2)]]


def gradient(i: int, x: FloatArray) -> FloatArray:
    return CURVATURES[i] @ (x - CENTERS[i])


def simulated(method: str, **params: Any) -> tuple[FloatArray, FloatArray]:
    """Shared parts of all versions, and every client's own model in the end."""
    task = quadratic(
        CENTERS.tolist(),
        CURVATURES.tolist(),
        START.tolist(),
        names={"u": 2, "v": 1},
        samples=SAMPLES.astype(int).tolist(),
    )
    player = Player(method, task, lr=RATE, steps=3, **params)
    played = player.play([[Part(*part) for part in round_] for round_ in LOG])
    everybody, learner = np.arange(3), played.learner
    rows = learner.store.rows(everybody)
    models = learner.station.method.personal_models(learner.server, everybody, rows).numpy()
    return played.state("shared" if "shared" in learner.server else "model"), models


def phases(first: float, second: float, steps: int) -> tuple[int, int]:
    """Steps of two phases one after the other, of which ``steps`` of 3 local steps have the time."""
    whole = math.ceil(3 * first), math.ceil(3 * second)
    if steps == 3:
        return whole
    time = math.floor(steps * (first + second))
    return min(time, whole[0]), max(0, time - whole[0])


def share(clients: list[int], weights: str) -> FloatArray:
    raw = SAMPLES[clients] if weights == "samples" else np.ones(len(clients))
    return raw / raw.sum()
