"""Asynchronous SGD with steps that adapt to the delay."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import Updates
from fedsim.methods.fedavg import FedAvg
from fedsim.methods.rennala import GradientParams
from fedsim.methods.staleness import ConstantStaleness, Staleness
from fedsim.parts.component import Parameters


class AsyncSgdParams(GradientParams):
    """Parameters of asynchronous SGD."""

    staleness: Staleness = ConstantStaleness(name="constant")
    """How steps decrease with the delay; ``reciprocal`` is the delay-adaptive rule of the papers."""


class AsyncSgd(FedAvg):
    """Every update moves the model by the whole change: x - gamma(tau) x gradient for a delay of tau versions.

    With ``staleness: reciprocal`` and its ``delay`` the concurrency, gamma(tau) = gamma min(1, delay /
    tau): the convergence is then independent of the longest delay. Koloskova et al. also allow gamma = 0 above the
    delay, which is ``max_staleness`` of the schedule.
    """

    name = "async_sgd"
    title = "Asynchronous SGD"
    paper = (
        "Koloskova, Stich and Jaggi, Sharper Convergence Guarantees for Asynchronous SGD for Distributed and Federated "
        "Learning, NeurIPS 2022, equation 8; Mishchenko et al., Asynchronous SGD Beats Minibatch SGD Under Arbitrary "
        "Delays, NeurIPS 2022, Algorithm 2"
    )
    paper_schedules = ("async",)
    # Changes are added, not averaged, wherever their clients trained.
    combines_parts = True
    Params: ClassVar[type[Parameters]] = AsyncSgdParams

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """The whole change of every update, (C,)."""
        return updates.multiplicity.astype(np.float64)

    def factors(self, updates: Updates) -> npt.NDArray[np.float64]:
        """The factors of the delays, (C,)."""
        factors: npt.NDArray[np.float64] = self.params.staleness.factor(
            updates.staleness.astype(np.float64), updates.version
        )
        return factors
