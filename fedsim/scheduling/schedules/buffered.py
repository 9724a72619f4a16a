"""The asynchronous and the buffered schedule: one update, or K updates, make a version."""

from __future__ import annotations

from pydantic import Field

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


class BufferedParams(ConcurrentParams):
    """Parameters of the buffered schedule."""

    buffer_size: int = Field(default=10, ge=1)
    """Updates per version (K); several may come from one client."""


class Buffered(Concurrent):
    """Clients work asynchronously, and every ``buffer_size`` updates create a version.

    Updates that arrive at one instant are handled one after the other, in order of dispatching. The slot of the client
    whose update completes the buffer goes to a client that starts from the new version.
    """

    name = "buffered"
    paper = "Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022, Algorithm 1"
    updates_needed = "buffer_size"
    Params = BufferedParams

    def __init__(self, params: BufferedParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection, params.buffer_size, params.max_staleness)
