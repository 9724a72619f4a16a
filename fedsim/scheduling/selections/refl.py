"""REFL: the least available clients first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedsim.scheduling.base import CohortParams, Dispatch, Selection, ServerPort
from fedsim.units import Duration, to_ns

_SMOOTHING = 0.25


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
        slot: Duration = Field(default=3600.0, gt=0)
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

    def predicted(self, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Predicted probability that each client is online one to two round lengths from now."""
        first = int(self.server.now_ns + self._length_ns) // self._slot_ns
        last = int(self.server.now_ns + 2 * self._length_ns) // self._slot_ns
        slots = np.arange(first, min(last, first + self._slots - 1) + 1) % self._slots
        seen = self._seen[clients]
        share = (seen.sum(1) + 1.0) / (self._observations.sum() + 2.0)
        chances = (seen[:, slots] + share[:, None]) / (self._observations[slots] + 1.0)
        result: npt.NDArray[np.float64] = chances.mean(1)
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
