"""FedAlt: partial personalization with alternating steps."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from fedsim.methods.base import Cohort, LocalUpdate, MethodContext, Trainer
from fedsim.methods.fedsim_method import FedSim, FedSimParams
from fedsim.methods.phases import phase_steps, run_phase


class FedAltParams(FedSimParams):
    """Parameters of FedAlt."""

    personal_steps: float = Field(default=1.0, gt=0)
    """Steps on the personal part per local step on the shared one, rounded up."""


class FedAlt(FedSim):
    """Clients first train their personal part, then the shared part with the new personal one; the server averages.

    A dispatch of K local steps makes ``personal_steps`` x K steps on the personal part with the shared part frozen,
    then K steps on the shared part with the personal part frozen. A client that stops midway has done its personal
    steps first, and perhaps none on the shared part. A step of either kind takes the time of one forward and backward
    pass. With ``personal: none`` it is FedAvg; with ``personal: all`` every client trains alone.
    """

    name = "fedalt"
    title = "FedAlt"
    paper = "Pillutla et al., Federated Learning with Partial Model Personalization, ICML 2022, Algorithms 1 and 2"
    Params = FedAltParams
    params: FedAltParams

    def __init__(self, params: FedAltParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.trains_twice = bool(self.split.personal_size and self.split.shared_size)

    def compute_factor(self) -> float:
        """Passes per local step: those on the personal part and one on the shared part."""
        on_personal = self.params.personal_steps if self.split.personal_size else 0.0
        return on_personal + (1.0 if self.split.shared_size else 0.0)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Personal steps, then shared steps."""
        start, split = self.start(cohort), self.split
        if not split.personal_size:
            return super().local_update(cohort, trainer)
        on_shared = 1.0 if split.shared_size else 0.0
        personal, shared = phase_steps(cohort, self.params.personal_steps, on_shared)
        trained = run_phase(
            trainer,
            cohort,
            start,
            personal,
            learning_rate_scale=self.learning_rate_scale(shared=not split.shared_size),
        )
        if split.shared_size:
            first_loss = trained.loss
            trained = run_phase(
                trainer,
                cohort,
                trained.model,
                shared,
                learning_rate_scale=self.learning_rate_scale(personal=False),
                phase=1,
            )
            if not shared.all():
                begun = cohort.column(shared > 0, first_loss).squeeze(1).bool()
                trained = replace(trained, loss=trained.loss.where(begun, first_loss))
        return self.sent_and_kept(start, trained)
