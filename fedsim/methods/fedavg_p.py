"""FedAvg-P and Scaffold-P: partial personalization with an outer step size for each part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from fedsim.methods.base import (
    Cohort,
    Factor,
    FloatArray,
    LocalUpdate,
    Memory,
    MethodContext,
    Prologue,
    ServerState,
    Step,
    Tensor,
    Trained,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
)
from fedsim.methods.control_variates import NEEDS_RECEIVED
from fedsim.methods.personal import FedSim, SplitParams


class FedAvgPParams(SplitParams):
    """Parameters of FedAvg-P."""

    eta_u: float = Field(default=1.0, gt=0)
    """Outer step size of the shared part, at the server. The theory requires at least sqrt(m) with m clients per round,
    or more if all participate, and a proportionally smaller gamma_u."""
    eta_v: float = Field(default=1.0, gt=0)
    """Outer step size of the personal part, at the client; the theory requires at least sqrt(N / m)."""
    keep_v_on_drop: bool = False
    """Whether a client that finished its work keeps its new personal part even if the server never uses its update;
    otherwise the part stays as it was."""


class FedAvgP(FedSim):
    """Joint local steps on a shared part u and a personal part v_i, with an outer step for each.

    A local step moves both parts along gradients taken at the same point, with step sizes gamma_u and gamma_v. Then
    u moves by eta_u times the mean change over the m clients of the round, and v_i by eta_v times its own change: with
    eta_v above 1 the new v_i lies beyond the trained one. With both outer step sizes 1 it is FedSim; with ``personal:
    none`` it is FedAvg with uniform weights and server learning rate eta_u; with ``personal: all`` every client trains
    alone.
    """

    name = "fedavg_p"
    title = "FedAvg-P"
    paper = (
        "Chen, Cao, Yuan and Wen, Sharper Convergence Guarantees for Federated Learning with Partial Model "
        "Personalization, arXiv:2309.17409, Algorithm 1"
    )
    Params: ClassVar[type[FedAvgPParams]] = FedAvgPParams
    params: FedAvgPParams

    def __init__(self, params: FedAvgPParams, context: MethodContext) -> None:
        super().__init__(params, context)
        # Outer step sizes amplify the rounding errors of small local steps.
        outer_steps = params.eta_u != 1 or params.eta_v != 1
        if outer_steps or self.learning_rate_scale() is not None:
            self.collect = ("change",)
        self.kept_when_lost = params.keep_v_on_drop
        if params.keep_v_on_drop:
            self.only_synchronous = (
                "with keep_v_on_drop, a client's dispatches must end in the order they began"
            )

    def sent_and_kept(self, start: Tensor, trained: Trained) -> LocalUpdate:
        """The change of u, and v_i after its outer step."""
        if trained.change is None:
            return super().sent_and_kept(start, trained)
        split, trainable = self.split, self.split.personal_trainable
        moved = split.personal(trained.change).clone()
        # Running statistics must not be extrapolated.
        moved[:, :trainable] *= self.params.eta_v
        memory = {"personal": moved.add_(split.personal(start))} if split.personal_size else {}
        return LocalUpdate({"delta": split.shared(trained.change)}, trained.loss, memory)

    def weights(self, updates: Updates) -> FloatArray:
        """Equal weights of all clients, (C,)."""
        return averaging_weights(updates, "uniform")

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        """u moves by eta_u times the mean change."""
        change[: self.split.shared_trainable] *= self.params.eta_u
        return super().step(server, change)


class ScaffoldPParams(FedAvgPParams):
    """Parameters of Scaffold-P."""

    c0: Literal["gradients", "zero"] = "gradients"
    """Initial control variates: each client's mean mini-batch gradient at the initial model, collected before the first
    round at a cost in time and bytes, or zero. Clients that are offline at the start, or whose update does not arrive,
    begin with zero in either case."""
    c0_clients: float | None = Field(default=None, gt=0)
    """Clients whose gradients the first round waits for, however long they take to come online: a share of all clients
    (up to 1) or a number of clients (above 1). By default, the clients online at the start."""
    uplink: Literal[1, 2] = 2
    """Number of vectors per upload: the changes of u and of c_i, or only the former, from which the server derives the
    latter. One vector needs plain SGD."""


class ScaffoldP(FedAvgP):
    """FedAvg-P whose local steps on u are corrected by control variates; no part of v_i crosses the network.

    A local step on u is u - gamma_u (g - c_i + c); steps on v_i are as in FedAvg-P. A client's new control variate c_i
    is the mean of its gradients over the steps it did, and c moves by the sum of the changes of the c_i over N, so that
    it stays their mean. A client whose update the server does not use keeps its old c_i.

    If clients do different numbers of steps (partial work), each divides by its own number, and the objective is biased
    toward those that do more. With ``personal: none`` it is SCAFFOLD with two step sizes.
    """

    name = "scaffold_p"
    averages = False
    title = "Scaffold-P"
    paper = (
        "Chen, Cao, Yuan and Wen, Sharper Convergence Guarantees for Federated Learning with Partial Model "
        "Personalization, arXiv:2309.17409, Algorithm 2"
    )
    downloads = ("shared", "control")
    uploads: Sequence[str] = ("delta", "control")
    Params: ClassVar[type[FedAvgPParams]] = ScaffoldPParams
    params: ScaffoldPParams

    def __init__(self, params: ScaffoldPParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.collect = ("mean_gradient", *self.collect)
        if params.uplink == 1:
            self.needs_plain_sgd = (
                "with uplink: 1 the server derives the clients' gradients from it"
            )
            self.only_synchronous = self.only_synchronous or NEEDS_RECEIVED
            self.needs_exact, self.uploads = {"control": NEEDS_RECEIVED}, ("delta",)

    def prologue(self) -> Prologue | None:
        """u down, c_i up."""
        if self.params.c0 == "zero":
            return None
        size = self.split.shared_size
        count, clients = self.params.c0_clients, self.context.clients
        if count is not None:
            count = min(clients, math.ceil((count * clients if count <= 1 else count) - 1e-9))
        return Prologue((Vector("shared", size),), (Vector("control", size),), count)

    def memories(self) -> Mapping[str, Memory]:
        """The personal part and c_i, whose changes are sent, or follow from that of u."""
        follows: dict[str, Factor] = {"control": 1.0}
        if self.params.uplink == 1:
            follows["delta"] = self._factor
        control = Memory(self.split.shared_size, follows=follows)
        return {**super().memories(), "control": control}

    def initial_state(self, model: Tensor) -> ServerState:
        """The model, its shared part, and c = 0."""
        state = super().initial_state(model)
        return {**state, "control": state["shared"].new_zeros(state["shared"].shape)}

    def vector_operations(self) -> float:
        """The correction of the shared part, and the sum of its gradients."""
        return 2.0 * self.split.shared_size / self.context.layout.size

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Corrected local steps; in the prologue gradients at the initial model."""
        start, split = self.start(cohort), self.split
        if self._is_prologue(int(cohort.versions[0])):
            first = trainer.run(cohort, start, move=False, collect=("mean_gradient",))
            assert first.mean_gradient is not None
            vectors = {"control": split.shared(first.mean_gradient)}
            return LocalUpdate(vectors, first.loss, vectors)
        previous, mean = cohort.memory["control"], cohort.down["control"]
        correction = mean - previous

        def rule(step: Step) -> None:
            split.add_to_shared(step.gradient, correction[step.rows])

        trained = trainer.run(
            cohort,
            start,
            rule=rule,
            learning_rate_scale=self.learning_rate_scale(),
            collect=self.collect,
        )
        result = self.sent_and_kept(start, trained)
        assert trained.mean_gradient is not None
        vectors = dict(result.vectors)
        if self.params.uplink == 2:
            control = split.shared(trained.mean_gradient)
            vectors["control"] = control - previous
        else:
            # As the server will derive it, so that its c stays the mean of all c_i.
            change = self._control_change(vectors["delta"], self._lengths(cohort), mean)
            control = previous + change
        return LocalUpdate(vectors, result.loss, {**result.memory, "control": control})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """u and c; unchanged without contributions."""
        if not len(updates):
            return server
        # A client drawn twice has one control variate.
        shares = [1 / self.context.clients] * len(updates)
        if self._is_prologue(updates.version - 1):
            return {**server, "control": updates.weighted_sum("control", shares)}
        if self.params.uplink == 2:
            change = updates.weighted_sum("control", shares)
        else:
            change = server["control"].new_zeros(server["control"].shape)
            lengths = updates.learning_rates * self._factors[0] * updates.steps
            for index, length in enumerate(lengths.tolist()):
                sent = updates.row("delta", index)
                one = self._control_change(sent, length, server["control"])
                change.add_(one, alpha=shares[index])
        return {**super().aggregate(server, updates), "control": server["control"] + change}

    def _is_prologue(self, version: int) -> bool:
        """Whether work on this version belongs to the prologue."""
        return version == 0 and self.params.c0 == "gradients"

    def _lengths(self, cohort: Cohort) -> Tensor:
        """K gamma_u of each client, (B, 1)."""
        rates = cohort.learning_rates * self._factors[0]
        return rates.unsqueeze(1) * cohort.column(cohort.steps, rates)

    def _factor(self, cohort: Cohort) -> Tensor:
        """Change of c_i per change of u, (B, 1); 0 at a rate of 0."""
        lengths = self._lengths(cohort)
        return (-1 / lengths).masked_fill(lengths == 0, 0.0)

    def _control_change(self, delta: Tensor, lengths: Tensor | float, everyones: Tensor) -> Tensor:
        """c_i's change, -c + (u - u_i) / (K gamma_u), from the change of u (..., d_u) and K gamma_u."""
        import torch

        change = -everyones - delta / lengths
        change[..., self.split.shared_trainable :] = 0
        # At a rate of 0, the change of u says nothing about the gradient.
        return change.masked_fill(torch.as_tensor(lengths) == 0, 0.0)
