"""The schedule of TimelyFL: rounds in which every client does the work that it has time for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from fedsim.scheduling.base import Selection, ServerPort
from fedsim.scheduling.schedules.sync import Sync, SyncParams


class TimelyParams(SyncParams):
    """Parameters of the schedule of TimelyFL."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's clients that have time for a full workload (k / n): the k-th shortest expected duration is the
    length of the round."""


class Timely(Sync):
    """Rounds as long as the k-th fastest of their clients expects to need, with the local steps that fit into them.

    In a round of length T, a client whose transfers take c is assigned (T - c) / s steps of its nominal duration s,
    rounded down, at least one: more than its full workload if it is fast. The paper gives slow clients a part of the
    model instead; here they do fewer steps on all of it. An update that arrives after T is late.
    """

    name = "timely"
    patience = ""
    paper = (
        "Zhang et al., TimelyFL: Heterogeneity-aware Asynchronous Federated Learning with Adaptive Partial Training, "
        "CVPR Workshops 2023, Algorithms 1 to 3"
    )
    Params = TimelyParams

    def __init__(self, params: TimelyParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._length_s = math.inf

    def limit_s(self, clients: Sequence[int]) -> float | None:
        """The k-th shortest expected duration, or the deadline if that is shorter."""
        expected_s = sorted(map(self.server.expected_duration_s, clients))
        if expected_s:
            self._length_s = expected_s[math.ceil(self.params.share * len(clients) - 1e-9) - 1]
        limit_s = min(self._length_s, super().limit_s(clients) or math.inf)
        return limit_s if limit_s < math.inf else None

    def steps(self, client: int) -> int | None:
        """Steps that the client expects to do within the round."""
        expected_s = self.server.expected_duration_s(client)
        if not 0 < expected_s < math.inf:
            return None
        full, step_s = int(self.server.default_steps[client]), self.server.step_s(client)
        # The client that expects to need exactly the length of the round does its full workload.
        more = (self._length_s - expected_s) / step_s if step_s else 0.0
        return max(1, full + math.floor(more + 1e-9))
