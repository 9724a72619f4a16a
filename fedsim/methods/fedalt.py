"""FedAlt: partial personalization with alternating steps."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedsim.methods._split import SplitMethod
from fedsim.methods.base import Cohort, LocalUpdate, Trainer
from fedsim.methods.fedsim_method import FedSimParams


class FedAltParams(FedSimParams):
    """Parameters of FedAlt."""

    personal_steps: float = Field(default=1.0, gt=0)
    """Steps on the personal part per local step on the shared one, rounded up."""


class FedAlt(SplitMethod):
    """Clients first train their personal part, then the shared part with the new personal one; the server averages.

    A dispatch of K local steps makes ``personal_steps`` x K steps on the personal part with the shared part frozen,
    then K steps on the shared part with the personal part frozen. A step of either kind takes the time of one forward
    and backward pass. With ``personal: none`` it is FedAvg; with ``personal: all`` every client trains alone.
    """

    name = "fedalt"
    title = "FedAlt"
    paper = "Pillutla et al., Federated Learning with Partial Model Personalization, ICML 2022, Algorithms 1 and 2"
    Params = FedAltParams
    params: FedAltParams

    def compute_factor(self) -> float:
        """Passes per local step: those on the personal part and one on the shared part."""
        on_personal = self.params.personal_steps if self.split.personal_size else 0.0
        return on_personal + (1.0 if self.split.shared_size else 0.0)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Personal steps, then shared steps."""
        start, split = self.start(cohort), self.split
        if not split.personal_size:
            return super().local_update(cohort, trainer)
        trained = trainer.run(
            cohort,
            start,
            steps=np.ceil(cohort.steps * self.params.personal_steps - 1e-9).astype(np.int64),
            learning_rate_scale=self.learning_rate_scale(shared=not split.shared_size),
        )
        if split.shared_size:
            trained = trainer.run(
                cohort,
                trained.model,
                learning_rate_scale=self.learning_rate_scale(personal=False),
                phase=1,
            )
        return self.sent_and_kept(start, trained)
