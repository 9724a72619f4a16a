"""ACE: asynchronous SGD along the mean of every client's cached update."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsim.methods.mifa import LatestUpdates
from fedsim.parts.component import Parameters


class AceParams(Parameters):
    """Parameters of ACE."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate; 1 is the paper's rule."""
    remembers: Literal["gradients", "changes"] = "changes"
    """The value remembered of each update: the change of the model, as in the paper, or the change divided by the
    learning rate at the time. With a constant learning rate, the two are equivalent."""


class Ace(LatestUpdates):
    """Every arriving update replaces its client's cached one, and the model moves by the mean of the cache.

    The rule is MIFA's, applied to every arrival. All clients are engaged in every step, so that fast ones do not bias
    the model. Cached updates are zero at first; the paper's first round waits for all clients.
    """

    name = "ace"
    title = "ACE"
    paper = (
        "Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, "
        "arXiv:2511.19066, ACE"
    )
    paper_schedules = ("async",)
    Params = AceParams
