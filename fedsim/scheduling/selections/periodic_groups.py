"""Groups of clients that participate in turn."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.drawing import Turns
from fedsim.units import Duration, to_ns


class PeriodicGroupsParams(CohortParams):
    """Parameters of groups that participate in turn."""

    groups: int = Field(default=5, ge=1)
    """Number of groups: equal blocks of consecutive clients (to one client)."""
    slot_rounds: int = Field(default=100, ge=1)
    """Rounds per slot, in which one group participates."""
    slot: Duration | None = Field(default=None, gt=0)
    """Simulated time per slot, instead of rounds."""
    offset: Literal["random"] | Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the first slot that has already passed at the start, or a random share drawn from the seed."""
    order: Literal["permutation", "independent"] = "permutation"
    """Within a slot: all clients in turn in a random order, redrawn every lap; or an independent uniform draw per
    round."""


class PeriodicGroups(Selection):
    """Groups participate in turn, each for a slot of rounds or time during which clients are drawn from that group.

    The periodic availability of Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client
    Participation, NeurIPS 2022, section 6, with a separate order per group that continues where the group's last
    slot ended. Rounds in which no client of the group is available are skipped.
    """

    name = "periodic_groups"
    Params = PeriodicGroupsParams

    def __init__(self, params: PeriodicGroupsParams, server: ServerPort) -> None:
        super().__init__(params, server)
        if params.groups > server.clients:
            raise UserError(
                f"there are {params.groups} groups, but {server.clients} clients",
                where="server.selection.groups",
            )
        offset = params.offset
        if offset == "random":
            offset = server.stream(Purpose.SELECTION, 4).uniform(0)
        self._slot_ns = None if params.slot is None else to_ns(params.slot)
        length = params.slot_rounds if self._slot_ns is None else self._slot_ns
        self._offset = int(offset * length)
        self._round = 0
        blocks = np.array_split(np.arange(server.clients), params.groups)
        self._is_member = [np.isin(np.arange(server.clients), block) for block in blocks]
        self._turns = [
            Turns(partial(_lap, block, server.stream(Purpose.SELECTION, 5, group)))
            for group, block in enumerate(blocks)
        ]

    @property
    def group(self) -> int:
        """The group of the current slot."""
        if self._slot_ns is None:
            slot = (self._round + self._offset) // int(self.params.slot_rounds)
        else:
            slot = (self.server.now_ns + self._offset) // self._slot_ns
        return slot % int(self.params.groups)

    def next_change_ns(self) -> int | None:
        """The start of the next slot if slots are measured in time."""
        if self._slot_ns is None:
            return None
        elapsed = (self.server.now_ns + self._offset) % self._slot_ns
        return self.server.now_ns + self._slot_ns - elapsed

    def draw(self, count: int) -> list[int]:
        """Draw clients of the current group."""
        present = self.available()
        available = present[self._is_member[self.group][present]]
        if self._slot_ns is None:
            slot_rounds = int(self.params.slot_rounds)
            while not len(available) and len(present):
                self._round += slot_rounds - (self._round + self._offset) % slot_rounds
                available = present[self._is_member[self.group][present]]
        group = self.group
        self._round += 1
        if self.params.order == "permutation":
            return self._turns[group].take(count, available)
        chosen: list[int] = self.generator().permutation(available)[:count].tolist()
        return chosen


def _lap(members: npt.NDArray[np.int64], stream: Stream, lap: int) -> npt.NDArray[np.int64]:
    """The order of one group in a lap."""
    return stream.generator(k=lap).permutation(members)
