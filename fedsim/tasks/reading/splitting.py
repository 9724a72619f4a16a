"""Deterministic splits into training and test samples for sources without one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.randomness import Purpose, Stream

_SPLIT = 1


def held_out(samples: int, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which samples are test samples: the rounded ``share`` of them, chosen at random, (n,) bool.

    A pure function of its arguments, stable across library versions.
    """
    keys = Stream(seed, Purpose.DATASET, _SPLIT).hashes(np.arange(samples))
    mask = np.zeros(samples, dtype=bool)
    mask[np.argsort(keys, kind="stable")[: round(share * samples)]] = True
    return mask
