"""FedAvg that limits how far one client can move the model."""

from pydantic import Field

from fedsim.methods.base import LocalUpdate
from fedsim.methods.fedavg import FedAvg, FedAvgParams


class Clipped(FedAvg):
    """FedAvg over updates that are at most ``norm`` long."""

    name = "clipped"
    title = "Clipped averaging"
    paper = "McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018, Algorithm 1"

    class Params(FedAvgParams):
        norm: float = Field(default=1.0, gt=0)
        """Largest Euclidean length of an update; longer ones are scaled down to it."""

    def local_update(self, cohort, trainer):
        """Train B clients together, whose models are the rows of (B, P) tensors, and clip what they send."""
        start = cohort.down["model"]
        trained = trainer.run(cohort, start)
        delta = trained.model - start
        length = delta.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return LocalUpdate(
            {"delta": delta * (self.params.norm / length).clamp_max(1)}, trained.loss
        )
