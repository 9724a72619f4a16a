"""The schedule of Rennala SGD: a batch of gradients at one model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsim.scheduling.base import Selection, ServerPort
from fedsim.scheduling.continuous import Concurrent, SlotParams


class RennalaParams(SlotParams):
    """Parameters of the schedule of Rennala SGD."""

    batch: int = Field(default=10, ge=1)
    """Updates per version (S); several may come from one client."""
    next_client: Literal["selection", "same"] = "same"
    """Which client gets the next dispatch when one ends: the same client when it next checks in, as in the paper, or a
    client newly drawn by the selection."""


class Rennala(Concurrent):
    """Clients are busy all the time, and ``batch`` updates that started from the current version create the next one.

    An update that started from an earlier version is discarded, and its client starts again from the current one; no
    work is stopped. With constant times tau_1 <= tau_2 <= ... per update and no transfers, a version that all clients
    start together takes the least t with floor(t / tau_1) + floor(t / tau_2) + ... >= S.
    """

    name = "rennala"
    paper = (
        "Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed "
        "Computation Model, NeurIPS 2023, Methods 4 and 5"
    )
    updates_needed = "batch"
    Params = RennalaParams

    def __init__(self, params: RennalaParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection, params.batch, max_staleness=0)
