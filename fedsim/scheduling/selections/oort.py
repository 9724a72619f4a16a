"""Oort: clients with much to learn from, and fast enough."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.scheduling.base import CohortParams, Dispatch, Selection, ServerPort
from fedsim.scheduling.successive import weighted_order
from fedsim.scheduling.tiers import profile
from fedsim.units import NS_PER_S

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class OortParams(CohortParams):
    """Parameters of Oort; defaults as in section 7.1 of the paper, the pacer's as in its published code."""

    exploration: float = Field(default=0.9, ge=0, le=1)
    """Share of the first cohort that is drawn among clients never seen before."""
    exploration_decay: float = Field(default=0.98, gt=0, le=1)
    """Factor on that share from draw to draw."""
    exploration_min: float = Field(default=0.2, ge=0, le=1)
    """Where it stops falling."""
    penalty: float = Field(default=2.0, ge=0)
    """How hard a client slower than preferred is set back (alpha)."""
    preferred_percentile: float = Field(default=30.0, gt=0, le=100)
    """The preferred duration is this percentile of those seen, at first ..."""
    pacer_step: float = Field(default=5.0, ge=0)
    """... and this many percentiles more whenever clients have taught less than before."""
    pacer_rounds: int = Field(default=20, ge=1)
    """Draws over which that is compared."""
    cutoff: float = Field(default=0.95, gt=0, le=1)
    """Clients are drawn among those with at least this share of the utility of the last one that would be needed."""
    clip: float = Field(default=0.95, gt=0, le=1)
    """Statistical utilities above this quantile count as much as it."""
    most_draws: int | None = Field(default=None, ge=1)
    """A client that was drawn this often is only drawn where there are no others."""


class Oort(Selection):
    """Guided participant selection: utility is what a client's data teach, less where it is slower than preferred.

    The statistical utility of a client is its number of samples times its mean training loss, as of its last aggregated
    update (which stands for |B| sqrt(mean squared loss) of the paper: updates carry mean losses), clipped and scaled to
    at most 1. To it come sqrt(0.1 log(draws) / last draw) for what may have changed since, and the factor
    (preferred / duration)^alpha for slow clients. A shrinking share of the cohort is spent on clients never seen,
    in proportion to their speed in a profiling run.

    Lai et al., Oort: Efficient Federated Learning via Guided Participant Selection, OSDI 2021, Algorithm 1. Needs
    training, and asks for the losses at every draw, which executes pending training.
    """

    name: ClassVar[str] = "oort"
    needs_training: ClassVar[bool] = True
    Params = OortParams

    def __init__(self, params: OortParams, server: ServerPort) -> None:
        super().__init__(params, server)
        n = server.clients
        self._utility = np.full(n, np.nan)
        self._duration_s = np.full(n, np.nan)
        self._last_draw = np.zeros(n, dtype=np.int64)
        self._times = np.zeros(n, dtype=np.int64)
        self._profile: FloatArray | None = None
        self._heard: list[Dispatch] = []
        self._draws = 0
        self._exploration = float(params.exploration)
        self._percentile = float(params.preferred_percentile)
        self._taught: list[float] = []

    def on_arrival(self, dispatch: Dispatch) -> None:
        """See :meth:`fedsim.scheduling.base.Selection.on_arrival`."""
        self._heard.append(dispatch)
        self._duration_s[dispatch.client] = (
            dispatch.arrived_ns - dispatch.dispatched_ns
        ) / NS_PER_S

    def draw(self, count: int) -> list[int]:
        """See :meth:`fedsim.scheduling.base.Selection.draw`."""
        available = self.available()
        count = min(count, len(available))
        if count < 1:
            return []
        self._learn()
        self._draws += 1
        self._pace()
        known = available[~np.isnan(self._utility[available])]
        new = available[self._times[available] == 0]
        exploring = min(len(new), round(self._exploration * count))
        self._exploration = max(
            min(self._exploration, self.params.exploration_min),
            self._exploration * self.params.exploration_decay,
        )
        chosen = self._exploit(known, count - exploring)
        chosen += self._explore(new, count - len(chosen))
        if len(chosen) < count:
            # Clients drawn before whose update has not been used; nothing is known that speaks for or against them.
            rest = np.setdiff1d(available, np.array(chosen, dtype=np.int64))
            chosen += self.generator().permutation(rest)[: count - len(chosen)].tolist()
        self._last_draw[chosen] = self._draws
        self._times[chosen] += 1
        return chosen

    def _learn(self) -> None:
        """Take up the losses of the updates that were aggregated since the last draw."""
        used = [dispatch for dispatch in self._heard if dispatch.used]
        self._heard = [dispatch for dispatch in self._heard if dispatch.open]
        taught = 0.0
        if used:
            clients = np.array([dispatch.client for dispatch in used])
            losses = np.nan_to_num(self.server.training_losses(used), posinf=0.0)
            self._utility[clients] = self.server.samples[clients] * losses
            taught = float(self._utility[np.unique(clients)].sum())
        self._taught.append(taught)

    def _pace(self) -> None:
        """Prefer slower clients than before where the fast ones teach less and less."""
        window = self.params.pacer_rounds
        if self._draws % window or len(self._taught) < 2 * window:
            return
        if sum(self._taught[-2 * window : -window]) > sum(self._taught[-window:]):
            self._percentile = min(100.0, self._percentile + self.params.pacer_step)

    def utilities(self, clients: IntArray) -> FloatArray:
        """Utility of clients whose updates have been used."""
        everybody = self._utility[~np.isnan(self._utility)]
        most = max(float(np.quantile(everybody, self.params.clip)), 1e-300)
        result: FloatArray = np.minimum(self._utility[clients], most) / most
        result += np.sqrt(
            0.1 * math.log(max(1, self._draws)) / np.maximum(1, self._last_draw[clients])
        )
        duration = self._duration_s[clients]
        known = self._duration_s[~np.isnan(self._duration_s)]
        preferred = float(np.percentile(known, self._percentile))
        slow = duration > preferred
        result[slow] *= (preferred / duration[slow]) ** self.params.penalty
        return result

    def _exploit(self, known: IntArray, count: int) -> list[int]:
        if self.params.most_draws is not None:
            fresh = known[self._times[known] < self.params.most_draws]
            known = fresh if len(fresh) >= count else known
        count = min(count, len(known))
        if count < 1:
            return []
        utilities = self.utilities(known)
        needed = np.partition(utilities, -count)[-count]
        good = utilities >= self.params.cutoff * needed
        # Those of no utility come last, in whatever order.
        weights = np.maximum(utilities[good], 1e-12)
        return weighted_order(self.generator(), known[good], weights)[:count]

    def _explore(self, new: IntArray, count: int) -> list[int]:
        if count < 1 or not len(new):
            return []
        if self._profile is None:
            self._profile = profile(self.server)
        speed = 1.0 / np.maximum(self._profile[new], 1e-9)
        return weighted_order(self.generator(), new, speed)[:count]
