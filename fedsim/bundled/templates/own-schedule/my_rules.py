"""Rounds that close when a share of the cohort has reported, and a selection of the longest-waiting clients."""

import math

from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.scheduling.base import CohortParams, Round, Schedule, Selection


class MedianRounds(Schedule):
    """Rounds that close at the arrival that completes ``share`` of the cohort; the others are stopped."""

    name = "median_rounds"
    synchronous = True  # all work of a round starts from one version

    class Params(Parameters):
        share: float = Field(default=0.5, gt=0, le=1)
        """Share of a round's clients whose updates close it; 0.5 closes at the median arrival."""

    def run(self):
        """One round after another."""
        while True:
            clients = yield from self.cohort()
            current = Round(self.server, clients)
            while len(current.arrived) < math.ceil(self.params.share * self.size(current)):
                event = yield
                current.receive(event)
            current.close(cut=True)
            # At the end of this instant, so that the clients that have just reported can be drawn again.
            yield self.after(0)

    def size(self, current):
        """Clients of the round, without those that have gone offline: the share is that of the others."""
        return len(current.arrived) + current.left


class LongestWaiting(Selection):
    """The available clients whose last dispatch is longest ago; ties by number."""

    name = "longest_waiting"
    Params = CohortParams

    def __init__(self, params, server):
        super().__init__(params, server)
        self._last = [-1] * server.clients
        self._draws = 0

    def draw(self, count):
        """Draw the clients that have waited longest."""
        self._draws += 1
        chosen = sorted(self.available().tolist(), key=lambda client: self._last[client])[:count]
        for client in chosen:
            self._last[client] = self._draws
        return chosen
