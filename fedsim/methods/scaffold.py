"""SCAFFOLD: local SGD with control variates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    Corrected,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    ServerState,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
)
from fedsim.parts.component import Parameters


class ScaffoldParams(Parameters):
    """Parameters of SCAFFOLD."""

    server_lr: float = Field(default=1.0, gt=0)
    """Global learning rate eta_g."""
    uplink: Literal[1, 2] = 2
    """Number of vectors per upload: the changes of the model and of the control variate, or only the latter, from which
    the server derives the former. One vector needs plain SGD and a synchronous schedule."""


class Scaffold(Method):
    """Each local gradient is corrected by the difference between the server's and the client's control variates.

    A local step is w - eta_l (g - c_i + c). The client's new control variate is the mean of its gradients over the
    steps it did (option II; its form with models is equal for plain SGD). The model moves by ``server_lr`` times the
    mean change, and c by the sum of the changes of c_i over N, so that c stays the mean of all c_i. With full
    participation and one local step it is gradient descent; with all control variates zero it would be FedAvg with
    uniform weights.
    """

    name = "scaffold"
    title = "SCAFFOLD"
    paper = (
        "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020, Algorithm 1 "
        "(option II); one vector up: Huang, Li and Li, Stochastic Controlled Averaging for Federated Learning with "
        "Communication Compression, arXiv:2308.08165"
    )
    paper_schedules = ("sync",)
    server_vectors = ("control",)
    Params = ScaffoldParams

    def __init__(self, params: ScaffoldParams, context: MethodContext) -> None:
        super().__init__(params, context)
        if params.uplink == 1:
            self.needs_plain_sgd = "with uplink: 1 the server derives the clients' models from it"
            received = (
                "with uplink: 1 the server needs the control variate that the client received"
            )
            self.only_synchronous, self.needs_exact = received, {"control": received}
            self.buffers_with = "control"

    def download(self) -> Sequence[Vector]:
        """x and c."""
        size = self.context.layout.size
        return (Vector("model", size), Vector("control", size))

    def upload(self) -> Sequence[Vector]:
        """Changes of the model and of c_i, or of c_i alone."""
        size = self.context.layout.size
        control = Vector("control", size)
        return (control,) if self.params.uplink == 1 else (Vector("delta", size), control)

    def memories(self) -> Mapping[str, Memory]:
        """c_i."""
        return {"control": Memory(self.context.layout.size, follows={"control": 1.0})}

    def vector_operations(self) -> float:
        """The correction, and the sum of the gradients."""
        return 2.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Corrected local steps."""
        start = cohort.down["model"]
        rule = Corrected(cohort.down["control"] - cohort.memory["control"])
        trained = trainer.run(cohort, start, rule=rule, collect=("mean_gradient",))
        mean = trained.mean_gradient
        assert mean is not None
        change = mean - cohort.memory["control"]
        delta = trained.model.sub_(start)
        trainable = self.context.layout.trainable
        change[:, trainable:] = delta[:, trainable:]
        vectors = {"control": change}
        if self.params.uplink == 2:
            vectors["delta"] = delta
        return LocalUpdate(vectors, trained.loss, {"control": mean})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Model and c; unchanged without contributions."""
        if not len(updates):
            return server
        layout = self.context.layout
        weights = averaging_weights(updates, "uniform")
        if self.params.uplink == 2:
            moved = updates.weighted_sum("delta", weights)
        else:
            # w - x = -eta_l K (mean gradient - c_i + c); the client sent the difference of the first two terms.
            lengths = weights * updates.learning_rates * updates.steps
            sent = updates.weighted_sum("control", lengths)
            moved = -(sent + float(lengths.sum()) * server["control"])
        model = server["model"] + self.params.server_lr * moved
        # A client drawn twice has one control variate.
        change = updates.weighted_sum("control", [1 / self.context.clients] * len(updates))
        change[layout.trainable :] = 0
        return {
            "model": model,
            "control": server["control"] + change,
        }
