"""FedRep: a shared representation and personal heads, trained alternately."""

from __future__ import annotations

from pydantic import Field

from fedsim.methods.fedalt import FedAlt, FedAltParams


class FedRepParams(FedAltParams):
    """Parameters of FedRep."""

    personal_steps: float = Field(default=10.0, gt=0)
    """Steps on the head per local step on the representation, rounded up."""


class FedRep(FedAlt):
    """Clients fit their personal head to the received representation, then take steps on the representation.

    In the paper clients take many steps on the head (10 epochs in the experiments) and few on the representation (1
    epoch); ``training.local_steps`` counts the latter. The server averages the representations with equal weights. It
    is FedAlt with more personal steps.
    """

    name = "fedrep"
    title = "FedRep"
    paper = (
        "Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021, "
        "Algorithm 1"
    )
    Params = FedRepParams
