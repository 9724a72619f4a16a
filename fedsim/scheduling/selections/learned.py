"""Selections that learn from what the clients did: Oort from losses and durations, REFL from when they are online."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field, model_validator

from fedsim.scheduling.base import CohortParams, Dispatch, Selection, ServerPort
from fedsim.scheduling.drawing import profile, weighted_order
from fedsim.units import NS_PER_S, Duration, to_ns
from fedsim.vocabulary.arrays import Floats, Ints

_SMOOTHING = 0.25


class Oort(Selection):
    """Guided participant selection: a client's utility follows its losses, with a penalty if it is slow.

    The statistical utility of a client with the training samples B is |B| sqrt((1/|B|) sum over B of loss^2), clipped
    and scaled to at most 1. The root mean square is that of the samples visited by the client's last aggregated
    dispatch, each with its loss at the model before its step; a sample that several epochs visit counts each time.
    The staleness bonus sqrt(0.1 log(draws) / last draw) is added, and clients slower than preferred get the factor
    (preferred / duration)^alpha. A shrinking share of the cohort goes to clients never drawn, in proportion to their
    speed in a profiling run.

    Lai et al., Oort: Efficient Federated Learning via Guided Participant Selection, OSDI 2021, Algorithm 1. Needs
    training, and requests the losses at every draw, which executes pending training.
    """

    name = "oort"
    needs_training = True
    dispatch_loss = "root_mean_square"

    class Params(CohortParams):
        exploration: float = Field(default=0.9, ge=0, le=1)
        """Share of the first cohort that is drawn from clients never drawn before."""
        exploration_decay: float = Field(default=0.98, gt=0, le=1)
        """Factor by which that share changes with every draw."""
        exploration_min: float = Field(default=0.2, ge=0, le=1)
        """Smallest exploration share."""
        penalty: float = Field(default=2.0, ge=0)
        """Exponent of the penalty for clients slower than preferred (alpha)."""
        preferred_percentile: float = Field(default=30.0, gt=0, le=100)
        """Initial percentile of the observed durations that is the preferred duration."""
        pacer_step: float = Field(default=5.0, ge=0)
        """Increase of that percentile whenever the total utility has fallen."""
        pacer_rounds: int = Field(default=20, ge=1)
        """Draws over which the total utility is compared."""
        cutoff: float = Field(default=0.95, gt=0, le=1)
        """Clients are drawn from those with at least this share of the lowest utility needed to fill the cohort."""
        clip: float = Field(default=0.95, gt=0, le=1)
        """Statistical utilities are clipped at this quantile."""
        most_draws: int | None = Field(default=None, ge=1)
        """Number of times a client may be drawn; after that it is drawn only if there are no others."""

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        n = server.clients
        self._utility = np.full(n, np.nan)
        self._duration_s = np.full(n, np.nan)
        self._last_draw = np.zeros(n, dtype=np.int64)
        self._times = np.zeros(n, dtype=np.int64)
        self._profile: Floats | None = None
        self._arrived: list[Dispatch] = []
        self._draws = 0
        self._exploration = float(params.exploration)
        self._percentile = float(params.preferred_percentile)
        self._totals: list[float] = []

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Record the update and the duration of its dispatch."""
        self._arrived.append(dispatch)
        self._duration_s[dispatch.client] = (
            dispatch.arrived_ns - dispatch.dispatched_ns
        ) / NS_PER_S

    def draw(self, count: int) -> list[int]:
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
            # Clients drawn before whose update has not been used: their utility is unknown.
            rest = np.setdiff1d(available, np.array(chosen, dtype=np.int64))
            chosen += self.generator().permutation(rest)[: count - len(chosen)].tolist()
        self._last_draw[chosen] = self._draws
        self._times[chosen] += 1
        return chosen

    def _learn(self) -> None:
        """Update utilities from the updates aggregated since the last draw."""
        used = [dispatch for dispatch in self._arrived if dispatch.used]
        self._arrived = [dispatch for dispatch in self._arrived if dispatch.open]
        total = 0.0
        if used:
            clients = np.array([dispatch.client for dispatch in used])
            losses = np.nan_to_num(self.server.training_losses(used), posinf=0.0)
            self._utility[clients] = self.server.samples[clients] * losses
            total = float(self._utility[np.unique(clients)].sum())
        self._totals.append(total)

    def _pace(self) -> None:
        """Raise the preferred duration if the total utility has fallen."""
        window = self.params.pacer_rounds
        if self._draws % window or len(self._totals) < 2 * window:
            return
        if sum(self._totals[-2 * window : -window]) > sum(self._totals[-window:]):
            self._percentile = min(100.0, self._percentile + self.params.pacer_step)

    def utilities(self, clients: Ints) -> Floats:
        """Utility of clients whose updates have been used."""
        all_utilities = self._utility[~np.isnan(self._utility)]
        most = max(float(np.quantile(all_utilities, self.params.clip)), 1e-300)
        result: Floats = np.minimum(self._utility[clients], most) / most
        result += np.sqrt(
            0.1 * math.log(max(1, self._draws)) / np.maximum(1, self._last_draw[clients])
        )
        duration = self._duration_s[clients]
        known = self._duration_s[~np.isnan(self._duration_s)]
        preferred = float(np.percentile(known, self._percentile))
        slow = duration > preferred
        result[slow] *= (preferred / duration[slow]) ** self.params.penalty
        return result

    def _exploit(self, known: Ints, count: int) -> list[int]:
        if self.params.most_draws is not None:
            fresh = known[self._times[known] < self.params.most_draws]
            known = fresh if len(fresh) >= count else known
        count = min(count, len(known))
        if count < 1:
            return []
        utilities = self.utilities(known)
        needed = np.partition(utilities, -count)[-count]
        good = utilities >= self.params.cutoff * needed
        # Clients without utility come last, in any order.
        weights = np.maximum(utilities[good], 1e-12)
        return weighted_order(self.generator(), known[good], weights)[:count]

    def _explore(self, new: Ints, count: int) -> list[int]:
        if count < 1 or not len(new):
            return []
        if self._profile is None:
            self._profile = profile(self.server)
        speed = 1.0 / np.maximum(self._profile[new], 1e-9)
        return weighted_order(self.generator(), new, speed)[:count]


class REFL(Selection):
    """Least available first: of the clients checked in, those least likely to be online soon.

    The server records at every draw which clients are checked in or busy, per slot of the daily cycle, and predicts
    from these shares which will be online one to two round lengths from now (adding one observation of the
    client's share of the whole day, which stands in for slots never seen). Ties are broken at random.

    Selection of Abdelmoniem et al., REFL: Resource-Efficient Federated Learning, EuroSys 2023, section 4.1; there, each
    learner predicts its own availability; here, the server predicts it from what it has observed.
    """

    name = "refl"

    class Params(CohortParams):
        hold_off: int = Field(default=5, ge=0)
        """Number of draws for which a client, once drawn, ranks behind all others."""
        slot: Duration = Field(default=3600.0, ge=1e-9)
        """Length of the slots for which availability is estimated."""
        cycle: Duration = Field(default=86_400.0, gt=0)
        """Length of the cycle that the slots divide."""
        round_length: Duration = Field(default=600.0, gt=0)
        """Assumed length of the first round."""

        @model_validator(mode="after")
        def _whole_slots(self) -> REFL.Params:
            slots = self.cycle / self.slot
            if slots < 1 or abs(slots - round(slots)) > 1e-9:
                raise ValueError("cycle must be a whole number of slots")
            return self

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        self._slot_ns = to_ns(params.slot)
        self._slots = round(params.cycle / params.slot)
        self._length_ns = float(to_ns(params.round_length))
        self._observations = np.zeros(self._slots, dtype=np.int64)
        self._seen = np.zeros((server.clients, self._slots), dtype=np.uint32)
        self._at_work = np.zeros(server.clients, dtype=np.bool_)
        self._drawn_at = np.full(server.clients, -(1 << 40), dtype=np.int64)
        self._draws = 0
        self._round_began_ns = -1

    def cohort(self, factor: float = 1.0) -> list[int]:
        """The clients of the next round; also measures the length of the last one."""
        now = self.server.now_ns
        if 0 <= self._round_began_ns < now:
            self._learn_length(now - self._round_began_ns)
        self._round_began_ns = now
        return super().cohort(factor)

    def draw(self, count: int) -> list[int]:
        self._observe()
        available = self.available()
        held = self._draws - self._drawn_at[available] < self.params.hold_off
        tie = self.generator().random(len(available))
        order = np.lexsort((tie, self.predicted(available), held))
        chosen = available[order[: max(0, count)]]
        self._draws += 1
        self._drawn_at[chosen] = self._draws
        self._at_work[chosen] = True
        clients: list[int] = chosen.tolist()
        return clients

    def predicted(self, clients: Ints) -> Floats:
        """Predicted probability that each client is online one to two round lengths from now."""
        first = int(self.server.now_ns + self._length_ns) // self._slot_ns
        last = int(self.server.now_ns + 2 * self._length_ns) // self._slot_ns
        slots = np.arange(first, min(last, first + self._slots - 1) + 1) % self._slots
        seen = self._seen[clients]
        share = (seen.sum(1) + 1.0) / (self._observations.sum() + 2.0)
        chances = (seen[:, slots] + share[:, None]) / (self._observations[slots] + 1.0)
        result: Floats = chances.mean(1)
        return result

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Mark the client as idle; without rounds, measure the length of its dispatch."""
        self._at_work[dispatch.client] = False
        if self._round_began_ns < 0:
            # Without rounds, a dispatch takes the role of a round.
            self._learn_length(dispatch.arrived_ns - dispatch.dispatched_ns)

    def on_failure(self, dispatch: Dispatch) -> None:
        self._at_work[dispatch.client] = False

    def _learn_length(self, length_ns: int) -> None:
        self._length_ns = (1 - _SMOOTHING) * length_ns + _SMOOTHING * self._length_ns

    def _observe(self) -> None:
        slot = self.server.now_ns // self._slot_ns % self._slots
        idle = self.server.online_clients()
        self._at_work[idle] = False
        self._observations[slot] += 1
        self._seen[idle, slot] += 1
        self._seen[self._at_work, slot] += 1
