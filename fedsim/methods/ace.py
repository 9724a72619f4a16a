"""ACE: asynchronous SGD along the mean of every client's cached update."""

from __future__ import annotations

from fedsim.methods.fedvarp import FedVarpParams
from fedsim.methods.mifa import LatestUpdates


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
    Params = FedVarpParams
