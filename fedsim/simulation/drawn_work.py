"""Limited clients, which do a random part of the work that a dispatch requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.randomness import Purpose, Stream
from fedsim.scenario.training import LimitedWork


class DrawnWork:
    """The limited clients of a scenario's ``training.limited`` (:class:`fedsim.scenario.training.LimitedWork`).

    Args:
        params: how many clients are limited, and by how much.
        units: local steps per unit of work (an epoch, or a single step), (N,).
        seed: the scenario's seed.
    """

    def __init__(self, params: LimitedWork, units: Sequence[int], seed: int) -> None:
        self._params = params
        self._units = units
        self._choice = Stream(seed, Purpose.LIMITED_WORK, 0)
        self._amount = Stream(seed, Purpose.LIMITED_WORK, 1)
        count = round(params.share * len(units))
        order = np.argsort(self._choice.uniforms(np.arange(len(units))), kind="stable")
        self._limited = frozenset(order[:count].tolist())

    def steps(self, client: int, sequence: int, steps: int) -> int:
        """Local steps that a client does, of ``steps`` requested, in its dispatch number ``sequence``."""
        params = self._params
        if params.redraw == "both":
            limited = self._choice.uniform(client, sequence) < params.share
        else:
            limited = client in self._limited
        if not limited:
            return steps
        unit = self._units[client]
        requested = -(-steps // unit)
        most = min(requested, max(1, requested - 1) if params.tau_max is None else params.tau_max)
        least = min(most, params.tau_min)
        u = self._amount.uniform(client, 0 if params.redraw == "never" else sequence)
        tau = least + int(u * (most - least + 1))
        return min(steps, (requested - tau + 1) * unit)
