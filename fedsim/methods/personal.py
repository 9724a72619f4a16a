"""Models that are partly shared and partly personal, and Ditto's personal models beside a global one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from fedsim.errors import UserError, located
from fedsim.methods.base import (
    Cohort,
    Collected,
    Factor,
    LocalRule,
    LocalUpdate,
    Memory,
    MethodContext,
    Prologue,
    Rounds,
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
from fedsim.methods.fedavg import PROXIMAL_OPERATIONS, FedAvg, FedAvgParams, proximal_rule
from fedsim.parts.component import Parameters
from fedsim.vocabulary.arrays import Floats, Ints

if TYPE_CHECKING:
    import torch

    from fedsim.tasks.layout import Layout

PersonalPart = Literal["head", "body", "none", "all"] | list[str]
_WHERE = "server.method.personal"


class SplitParams(Parameters):
    """Parameters of methods with a shared and a personal part of the model."""

    personal: PersonalPart = "head"
    """The part that stays with each client: head (the last layer), body (all but the last layer), none, all, or a list
    of names of tensors or modules of the model, with wildcards."""
    gamma_u: float | None = Field(default=None, gt=0)
    """Local step size of the shared part; by default the training section's learning rate. It follows
    ``training.lr_schedule``."""
    gamma_v: float | None = Field(default=None, gt=0)
    """Local step size of the personal part; default and schedule as for ``gamma_u``."""


class Split:
    """Which entries of the flat vector (P,) are shared and which are personal; buffers go with their module.

    Attributes:
        mask: whether an entry is personal, (P,) bool.
        personal_names: tensors that are personal.
        shared_size, personal_size: number of entries of each part.
        shared_trainable, personal_trainable: number of these that have a gradient; they come first.
    """

    def __init__(self, layout: Layout, personal: PersonalPart, device: torch.device) -> None:
        mask = _mask(layout, personal)
        self._size = layout.size
        self.personal_names = tuple(
            name for name, start in zip(layout.names, layout.offsets, strict=False) if mask[start]
        )
        self.mask = mask.to(device)
        self._personal, self.personal_size = _index(mask, device)
        self._shared, self.shared_size = _index(~mask, device)
        self.personal_trainable = int(mask[: layout.trainable].sum())
        self.shared_trainable = layout.trainable - self.personal_trainable

    def shared(self, models: Tensor) -> Tensor:
        """The shared entries of ``models`` (..., P), possibly a view."""
        return models[..., self._shared]

    def personal(self, models: Tensor) -> Tensor:
        """The personal entries of ``models`` (..., P), possibly a view."""
        return models[..., self._personal]

    def join(self, shared: Tensor, personal: Tensor | None) -> Tensor:
        """Models (..., P) from their two parts."""
        if personal is None or not self.personal_size:
            return shared
        result = shared.new_empty(*shared.shape[:-1], self._size)
        result[..., self._shared] = shared
        result[..., self._personal] = personal
        return result

    def add_to_shared(self, models: Tensor, shared: Tensor) -> None:
        """Add to the shared entries of ``models`` (..., P) in place."""
        models[..., self._shared] += shared


def _mask(layout: Layout, personal: PersonalPart) -> Tensor:
    import torch

    if personal == "none" or personal == "all":
        return torch.full((layout.size,), personal == "all")
    if isinstance(personal, list):
        with located(_WHERE):
            return layout.mask(personal)
    trainable = len(layout.names) - len(layout.buffers)
    last = layout.names[trainable - 1]
    module = last.rpartition(".")[0]
    head = layout.mask([module or last])
    if bool(head[: layout.trainable].all()):
        raise UserError(
            f"the model has only one layer ({module or last}), so it has no separate head and body",
            where=_WHERE,
            hint="use none or all, or a model with several layers (for a timing task: name its blocks)",
        )
    return head if personal == "head" else ~head


def _index(mask: Tensor, device: torch.device) -> tuple[slice | Tensor, int]:
    """The index of the entries of a mask, a slice if they are contiguous, and their number."""
    entries = mask.nonzero().squeeze(1)
    count = len(entries)
    first = int(entries[0]) if count else 0
    if bool(mask[first : first + count].all()):
        return slice(first, first + count), count
    return entries.to(device), count


class FedSim(FedAvg):
    """Clients step their shared and personal parts together; the server averages the shared parts.

    Both gradients of a step come from one backward pass at the same point. With ``personal: none`` it is FedAvg; with
    ``personal: all`` every client trains alone. It is FedAvg-P with outer step sizes 1.
    """

    # The personal part v_i never crosses the network, and changes only if the server uses the client's update. The
    # model of the server holds the initial personal part.
    name = "fedsim"
    title = "FedSim"
    paper = "Pillutla et al., Federated Learning with Partial Model Personalization, ICML 2022, Algorithms 1 and 3"
    personal = True
    downloads: Sequence[str] = ("shared",)

    class Params(SplitParams):
        weights: Literal["samples", "uniform"] = "uniform"
        """Weight of a client in the average: its number of training samples, or equal for all clients."""

    params: SplitParams
    collect: Sequence[Collected] = ()
    kept_when_lost = False

    def __init__(self, params: SplitParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.split = Split(context.layout, params.personal, context.device)
        self.elements = self.split.shared_size
        base = context.learning_rate(0, 0.0)
        self._factors = ((params.gamma_u or base) / base, (params.gamma_v or base) / base)

    def is_fedavg(self, rounds: Rounds) -> str:
        shares_all = not self.split.personal_size and self._factors[0] == 1
        return "no part of the model is personal" if shares_all else ""

    def memories(self) -> Mapping[str, Memory]:
        split, kept = self.split, self.kept_when_lost
        row = Memory(split.personal_size, split.personal, kept_when_lost=kept, follows={})
        return {"personal": row} if split.personal_size else {}

    def initial_state(self, model: Tensor) -> ServerState:
        return {"model": model, "shared": self.split.shared(model)}

    def start(self, cohort: Cohort) -> Tensor:
        return self.split.join(cohort.down["shared"], cohort.memory.get("personal"))

    def learning_rate_scale(self, shared: bool = True, personal: bool = True) -> Tensor | None:
        """Factors (P,) on the learning rate of each part, 0 for a part that must not move; None if all are 1."""
        factors = (self._factors[0] * shared, self._factors[1] * personal)
        if factors == (1.0, 1.0):
            return None
        whole = self.split.mask.new_full(
            self.split.mask.shape, factors[0], dtype=self.context.dtype
        )
        return whole.masked_fill_(self.split.mask, factors[1])

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        start = self.start(cohort)
        trained = trainer.run(
            cohort, start, learning_rate_scale=self.learning_rate_scale(), collect=self.collect
        )
        return self.sent_and_kept(start, trained)

    def sent_and_kept(self, start: Tensor, trained: Trained) -> LocalUpdate:
        """The update after training from ``start`` (B, P)."""
        delta = self.split.shared(trained.model) - self.split.shared(start)
        personal = {"personal": self.split.personal(trained.model)}
        kept = personal if self.split.personal_size else {}
        return LocalUpdate({"delta": delta}, trained.loss, kept)

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        state = {**server, "shared": server["shared"] + change}
        return {**state, "model": self.whole_model(state)}

    def whole_model(self, state: ServerState) -> Tensor:
        return self.split.join(state["shared"], self.split.personal(state["model"]))

    def buffers_in(self, elements: int, layout: Layout) -> int:
        of_shared = elements == self.split.shared_size
        return self.split.shared_size - self.split.shared_trainable if of_shared else 0

    def personal_models(
        self, server: ServerState, clients: Ints, memory: Mapping[str, Tensor]
    ) -> Tensor:
        shared = server["shared"].expand(len(clients), -1)
        return self.split.join(shared, memory.get("personal"))

    def personal_parts(self) -> Sequence[str]:
        return self.split.personal_names


class FedPer(FedSim):
    """The layers near the input are shared and averaged by samples; the last layer stays with each client.

    Both are trained together. To keep more layers personal, name them in ``personal``.
    """

    name = "fedper"
    title = "FedPer"
    paper = "Arivazhagan et al., Federated Learning with Personalization Layers, arXiv:1912.00818, Algorithms 1 and 2"

    class Params(FedSim.Params):
        weights: Literal["samples", "uniform"] = "samples"
        """Weight of a client in the average: its number of training samples, or equal for all clients."""


class LgFedAvg(FedSim):
    """Each client learns its own representation; the head on top of it is shared.

    Both are trained together; the server averages the heads by samples. The authors' experiments start from a model
    trained with FedAvg.
    """

    name = "lg_fedavg"
    title = "LG-FedAvg"
    paper = (
        "Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations, "
        "arXiv:2001.01523, Algorithm 1 (without the optional adversarial term)"
    )

    class Params(FedPer.Params):
        personal: PersonalPart = "body"
        """The part that stays with each client: body (all but the last layer), head, none, all, or a list of names of
        tensors or modules of the model, with wildcards."""


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

    class Params(FedSim.Params):
        personal_steps: float = Field(default=1.0, gt=0)
        """Steps on the personal part per local step on the shared one, rounded up."""

    params: Params

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self.trains_twice = bool(self.split.personal_size and self.split.shared_size)

    def compute_factor(self) -> float:
        on_personal = self.params.personal_steps if self.split.personal_size else 0.0
        return on_personal + (1.0 if self.split.shared_size else 0.0)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        start, split = self.start(cohort), self.split
        if not split.personal_size:
            return super().local_update(cohort, trainer)
        on_personal, on_shared = phase_steps(
            cohort, self.params.personal_steps, float(split.shared_size > 0)
        )
        scale = self.learning_rate_scale(shared=not split.shared_size)
        first = run_phase(trainer, cohort, start, on_personal, learning_rate_scale=scale)
        scale = self.learning_rate_scale(personal=False)
        second = run_phase(
            trainer, cohort, first.model, on_shared, learning_rate_scale=scale, phase=1
        )
        begun = cohort.column(on_shared > 0, first.loss).squeeze(1).bool()
        loss = second.loss.where(begun, first.loss)
        return self.sent_and_kept(start, replace(second, loss=loss))


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

    class Params(FedAlt.Params):
        personal_steps: float = Field(default=10.0, gt=0)
        """Steps on the head per local step on the representation, rounded up."""


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

    class Params(FedAvgParams):
        weights: Literal["samples", "uniform"] = "uniform"
        """Weight of a client's update: its number of training samples, or equal for all clients."""
        attraction: float = Field(default=1.0, ge=0)
        """Strength of the pull of the global model on the personal ones (lambda in the paper)."""
        personal_steps: float = Field(default=1.0, gt=0)
        """Steps on the personal model per local step on the global one, rounded up."""

    params: Params

    def memories(self) -> Mapping[str, Memory]:
        return {"personal": Memory(self.context.layout.size, lambda model: model, follows={})}

    def compute_factor(self) -> float:
        return 1.0 + self.params.personal_steps

    def vector_operations(self) -> float:
        return PROXIMAL_OPERATIONS * self.params.personal_steps if self.params.attraction else 0.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
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
        self, server: ServerState, clients: Ints, memory: Mapping[str, Tensor]
    ) -> Tensor:
        return memory["personal"]


_ROUNDING = 1e-9


def phase_steps(cohort: Cohort, first: float, second: float) -> tuple[Ints, Ints]:
    """Steps that each dispatch has done in each of the two phases, two (B,) arrays.

    A whole dispatch takes ``first`` and ``second`` steps per assigned local step, rounded up. A client that did only
    some of its local steps has spent the time of those steps on the first phase, and only the remainder on the second.
    """
    assigned, done = cohort.steps_assigned, cohort.steps
    whole = [
        np.ceil(assigned * per_step - _ROUNDING).astype(np.int64) for per_step in (first, second)
    ]
    spent = np.floor(done * (first + second) + _ROUNDING).astype(np.int64)
    spent = np.where(done < assigned, spent, whole[0] + whole[1])
    in_first: Ints = np.minimum(spent, whole[0])
    return in_first, spent - in_first


def run_phase(
    trainer: Trainer,
    cohort: Cohort,
    start: Tensor,
    steps: Ints,
    rule: Callable[[Any], LocalRule | None] = lambda rows: None,
    **options: Any,
) -> Trained:
    """Training of a phase, whose steps need not be sorted as the cohort is.

    Args:
        trainer, cohort, start, options: as :meth:`fedsim.methods.base.Trainer.run`.
        steps: steps of each dispatch, (B,).
        rule: returns the local rule for an index of rows, which sorts tensors of the cohort in the order of training.
    """
    import torch

    if not steps.any():
        return Trained(start.clone(), None, start.new_zeros(len(steps)))
    if (np.diff(steps) <= 0).all():
        return trainer.run(cohort, start, steps=steps, rule=rule(slice(None)), **options)
    order = np.argsort(-steps, kind="stable")
    rows, back = (
        torch.as_tensor(index, device=start.device) for index in (order, np.argsort(order))
    )
    in_order = replace(
        cohort,
        clients=cohort.clients[order],
        sequences=cohort.sequences[order],
        learning_rates=cohort.learning_rates[rows],
    )
    trained = trainer.run(in_order, start[rows], steps=steps[order], rule=rule(rows), **options)
    return replace(trained, model=trained.model[back], loss=trained.loss[back])


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

    class Params(SplitParams):
        eta_u: float = Field(default=1.0, gt=0)
        """Outer step size of the shared part, at the server. The theory requires at least sqrt(m) with m clients per
        round, or more if all participate, and a proportionally smaller gamma_u."""
        eta_v: float = Field(default=1.0, gt=0)
        """Outer step size of the personal part, at the client; the theory requires at least sqrt(N / m)."""
        keep_v_on_drop: bool = False
        """Whether a client that finished its work keeps its new personal part even if the server never uses its update;
        otherwise the part stays as it was."""

    params: Params

    def __init__(self, params: Params, context: MethodContext) -> None:
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
        if trained.change is None:
            return super().sent_and_kept(start, trained)
        split, trainable = self.split, self.split.personal_trainable
        moved = split.personal(trained.change).clone()
        # Running statistics must not be extrapolated.
        moved[:, :trainable] *= self.params.eta_v
        memory = {"personal": moved.add_(split.personal(start))} if split.personal_size else {}
        return LocalUpdate({"delta": split.shared(trained.change)}, trained.loss, memory)

    def weights(self, updates: Updates) -> Floats:
        return averaging_weights(updates, "uniform")

    def step(self, server: ServerState, change: Tensor) -> ServerState:
        change[: self.split.shared_trainable] *= self.params.eta_u
        return super().step(server, change)


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

    class Params(FedAvgP.Params):
        c0: Literal["gradients", "zero"] = "gradients"
        """Initial control variates: each client's mean mini-batch gradient at the initial model, collected before the
        first round at a cost in time and bytes, or zero. Clients that are offline at the start, or whose update does
        not arrive, begin with zero in either case."""
        c0_clients: float | None = Field(default=None, gt=0)
        """Clients whose gradients the first round waits for, however long they take to come online: a share of all
        clients (up to 1) or a number of clients (above 1). By default, the clients online at the start."""
        uplink: Literal[1, 2] = 2
        """Number of vectors per upload: the changes of u and of c_i, or only the former, from which the server derives
        the latter. One vector needs plain SGD."""

    params: Params

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        self.collect = ("mean_gradient", *self.collect)
        if params.uplink == 1:
            self.needs_plain_sgd = (
                "with uplink: 1 the server derives the clients' gradients from it"
            )
            self.only_synchronous = self.only_synchronous or NEEDS_RECEIVED
            self.needs_exact, self.uploads = {"control": NEEDS_RECEIVED}, ("delta",)

    def prologue(self) -> Prologue | None:
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
        state = super().initial_state(model)
        return {**state, "control": state["shared"].new_zeros(state["shared"].shape)}

    def vector_operations(self) -> float:
        return 2.0 * self.split.shared_size / self.context.layout.size

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
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
