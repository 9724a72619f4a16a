"""Ditto: personal models that are pulled toward the global one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import Cohort, LocalUpdate, Memory, ServerState, Tensor, Trainer
from fedsim.methods.fedavg import FedAvg, FedAvgParams
from fedsim.methods.local_rules import PROXIMAL_OPERATIONS, proximal_rule
from fedsim.methods.phases import phase_steps, run_phase


class DittoParams(FedAvgParams):
    """Parameters of Ditto."""

    weights: Literal["samples", "uniform"] = "uniform"
    """Weight of a client's update: its number of training samples, or equal for all clients."""
    attraction: float = Field(default=1.0, ge=0)
    """Strength of the pull of the global model on the personal ones (lambda in the paper)."""
    personal_steps: float = Field(default=1.0, gt=0)
    """Steps on the personal model per local step on the global one, rounded up."""


class Ditto(FedAvg):
    """FedAvg for a global model, and a personal model of each client.

    A dispatch trains twice: the global model as in FedAvg, then the client's personal model v_i on its own objective
    plus ``attraction`` / 2 x ||v_i - w_received||^2. A client that stops midway has trained the global model first.
    Personal models start as the initial model and never leave the client. With ``attraction: 0`` personal models are
    trained independently; with a large ``attraction`` they approach the global model.
    """

    name = "ditto"
    title = "Ditto"
    paper = "Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, Algorithm 1"
    personal = True
    trains_twice = True
    Params = DittoParams
    params: DittoParams

    def memories(self) -> Mapping[str, Memory]:
        """The personal model, which starts as the initial one."""
        return {"personal": Memory(self.context.layout.size, lambda model: model, follows={})}

    def compute_factor(self) -> float:
        """One step on the global model plus those on the personal one."""
        return 1.0 + self.params.personal_steps

    def vector_operations(self) -> float:
        """The pull on the personal model."""
        return PROXIMAL_OPERATIONS * self.params.personal_steps if self.params.attraction else 0.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Training of the global model, then of the personal one."""
        start, strength = cohort.down["model"], self.params.attraction
        on_global, on_personal = phase_steps(cohort, 1.0, self.params.personal_steps)
        of_global = run_phase(trainer, cohort, start, on_global)
        of_personal = run_phase(
            trainer,
            cohort,
            cohort.memory["personal"],
            on_personal,
            rule=lambda rows: proximal_rule(start[rows], strength),
            phase=1,
        )
        return LocalUpdate(
            {"delta": of_global.model.sub_(start)}, of_global.loss, {"personal": of_personal.model}
        )

    def personal_models(
        self, server: ServerState, clients: npt.NDArray[np.int64], memory: Mapping[str, Tensor]
    ) -> Tensor:
        """The clients' own models."""
        return memory["personal"]
