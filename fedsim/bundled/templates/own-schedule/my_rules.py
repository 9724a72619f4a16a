"""Rounds that close when a share of the cohort has reported, and a selection of the longest-waiting clients."""

import math

from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.scheduling.base import CohortParams, Schedule, Selection


class MedianRoundsParams(Parameters):
    """Parameters of the schedule."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's clients whose updates close it; 0.5 closes at the median arrival."""


class MedianRounds(Schedule):
    """Rounds that close at the arrival that completes ``share`` of the cohort; the others are stopped."""

    name = "median_rounds"
    synchronous = True  # all work of a round starts from one version
    Params = MedianRoundsParams

    def start(self):
        """Begin the first round."""
        self._begin()

    def _begin(self):
        cohort = self.selection.cohort()
        if not cohort:
            self.server.call_when_available(self._begin)
            return
        self._open, self._arrived = [], []
        self._wanted = math.ceil(self.params.share * len(cohort))
        self._size = len(cohort)
        for client in cohort:
            self.server.dispatch(client, on_dispatched=self._open.append)

    def on_arrival(self, dispatch):
        """Close the round at the arrival that completes the share."""
        if dispatch not in self._open:  # of an earlier round
            self.server.discard(dispatch, late=True)
            return
        self._arrived.append(dispatch)
        if len(self._arrived) == self._wanted:
            self._close()

    def on_failure(self, dispatch):
        """A client has gone offline: the share is now that of the remaining clients."""
        if dispatch not in self._open:
            return
        self._open.remove(dispatch)
        self._size -= 1
        self._wanted = min(self._wanted, math.ceil(self.params.share * self._size))
        if len(self._arrived) >= self._wanted:
            self._close()

    def _close(self):
        used, rest = self._arrived, [item for item in self._open if item not in self._arrived]
        self._open, self._arrived = [], []
        for dispatch in rest:
            self.server.cut(dispatch)
        if used:
            self.server.aggregate(used, closes_round=True)
        else:
            self.server.close_round()
        # At the end of this instant, so that the clients that have just reported can be drawn again.
        self.server.call_at(max(self.server.now_ns, self.server.busy_until_ns), self._begin)


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
