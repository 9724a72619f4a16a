"""The asynchronous schedule: every update makes a version."""

from __future__ import annotations

from fedsim.scheduling.base import Selection, ServerPort
from fedsim.scheduling.continuous import Concurrent, ConcurrentParams


class Asynchronous(Concurrent):
    """Every update creates a version immediately, and the client's slot is filled immediately.

    Updates that arrive at one instant are handled one after the other, in order of dispatching.
    """

    name = "async"
    paper = (
        "Xie, Koyejo and Gupta, Asynchronous Federated Optimization, arXiv:1903.03934, Algorithm 1"
    )
    Params = ConcurrentParams

    def __init__(self, params: ConcurrentParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection, 1, params.max_staleness)
