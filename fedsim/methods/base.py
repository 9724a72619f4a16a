"""The interface of a method: vectors sent, state kept, local rule, aggregation rule.

A method defines *what* is learned; the schedule defines *when*. Every rule is vector algebra on flat parameter vectors
of length P: a group of B dispatches is a (B, P) matrix, so that the same code serves one client and a thousand.

A new method is a subclass of :class:`Method` with a ``name``, a ``Params`` model and :meth:`Method.aggregate`, and with
:meth:`Method.local_rule` or :meth:`Method.local_update` if its clients do more than plain local training. Reading a
method's class and parameters does not import torch: import it inside functions; :data:`Tensor` serves annotations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedsim.learning.compression import Compression
from fedsim.learning.optimizers import Optimizer
from fedsim.learning.optimizers.sgd import Sgd
from fedsim.parts.component import Component, Parameters, is_bundled
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import torch

    from fedsim.learning.submodels.parts import Parts
    from fedsim.tasks.layout import Layout

Tensor: TypeAlias = "torch.Tensor"
"""For type annotations; importing it from here does not import torch."""

Factor: TypeAlias = "float | Callable[[Cohort], Tensor]"
"""A number, or a function that returns one per client, (B, 1)."""

ServerState: TypeAlias = "Mapping[str, Tensor]"
"""Named tensors of the server, always including ``"model"`` (P,). Never changed in place: an aggregation returns new
ones."""


@dataclass(frozen=True, slots=True)
class MethodContext:
    """The facts about a run that a method may use.

    Attributes:
        layout: names, shapes and offsets of the flat parameter vector.
        clients: number of clients N.
        samples: training samples of each client, (N,) int64; of edge servers float64, in the mean over the run.
        learning_rate: local learning rate at (round, simulated seconds).
        local_steps: local steps of a full dispatch of each client, (N,) int64.
        tensors: returns the :attr:`dtype` and :attr:`device` of all vectors.
        seed: the scenario's seed.
        availability_cycle_s: length of one availability cycle of the devices; a day unless the trace has a longer one.
        optimizer: optimizer of the local steps, for rules that must undo its effect on a sum of gradients.
    """

    layout: Layout
    clients: int
    samples: npt.NDArray[np.int64 | np.float64]
    learning_rate: Callable[[int, float], float]
    local_steps: Ints
    tensors: Callable[[], tuple[torch.dtype, torch.device]]
    seed: int
    availability_cycle_s: float = 86_400.0
    optimizer: Optimizer = field(default_factory=lambda: Sgd(Sgd.Params()))

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of all vectors."""
        return self.tensors()[0]

    @property
    def device(self) -> torch.device:
        """Device of the vectors."""
        return self.tensors()[1]

    @property
    def sgd_momentum(self) -> tuple[float, bool]:
        """Momentum of the local SGD steps, and whether it is Nesterov's; no momentum with other optimizers."""
        optimizer = self.optimizer
        if not isinstance(optimizer, Sgd):
            return 0.0, False
        return optimizer.params.momentum, optimizer.params.nesterov

    def local_rate(self, updates: Updates) -> float:
        """The local learning rate of a server update, for server steps that are proportional to it.

        The rate of the contribution dispatched last; without contributions, that of the round being closed.
        """
        if not len(updates):
            return self.learning_rate(updates.round, updates.time_s)
        return float(updates.learning_rates[np.argmax(updates.versions)])

    def distance_covered(self, steps: Ints) -> Floats:
        """Distance that this many local SGD steps cover along a constant unit gradient at learning rate 1, (C,).

        The number of steps without momentum; with momentum the sum of the coefficients with which the gradients enter
        the change (a_i of Wang et al., NeurIPS 2020, section 4).
        """
        momentum, nesterov = self.sgd_momentum
        if not momentum:
            return steps.astype(np.float64)
        covered = np.zeros(int(steps.max()) + 1)
        velocity = 0.0
        for step in range(1, len(covered)):
            velocity = momentum * velocity + 1
            covered[step] = covered[step - 1] + (1 + momentum * velocity if nesterov else velocity)
        result: Floats = covered[steps]
        return result

    def generator(self, *keys: int) -> np.random.Generator:
        """A generator of the method's own random numbers; equal keys give equal numbers.

        The keys are ``updates.version`` in an aggregation, and a row's client and sequence in a local update, so that
        the numbers do not depend on the grouping or the order of execution.
        """
        return Stream(self.seed, Purpose.METHOD, len(keys), *keys).generator()


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a scenario with the ``sync`` schedule, for :meth:`Method.is_fedavg`.

    Attributes:
        full_work: whether no update has fewer local steps than assigned.
        equal_work: whether all updates have the same number of local steps.
        all_clients: whether every client takes part in every round.
    """

    full_work: bool
    equal_work: bool
    all_clients: bool


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector that crosses the network with every dispatch.

    Attributes:
        name: key in the server state (down) or in :attr:`LocalUpdate.vectors` (up).
        elements: its length.
        bits: bits per entry as sent, such as 8 after quantization, for bytes and time only; None for the size of the
            training dtype.
        varies: whether dispatches send different parts of what it stands for, so that the errors and references of
            earlier ones are of no use.
        compression: how it is compressed on the way, as the scenario says; a method leaves it out.
        exact: number of entries at its end that are buffers, which are never compressed; a method leaves it out.
        share: share of the entries that is sent, for bytes and time only.
    """

    name: str
    elements: int
    bits: float | None = None
    share: float = 1.0
    varies: bool = field(default=False, repr=False)
    compression: Compression | None = field(default=None, repr=False)
    exact: int = field(default=0, repr=False)

    def raw_bytes(self, item_bytes: int) -> float:
        """Bytes of the vector without compression; ``item_bytes`` is the size of an entry of the training dtype."""
        entry_bytes = item_bytes if self.bits is None else self.bits / 8
        return self.elements * self.share * entry_bytes

    def size_bytes(self, item_bytes: int) -> float:
        """Bytes of the vector as sent."""
        if self.compression is None:
            return self.raw_bytes(item_bytes)
        entry_bits = 8 * item_bytes if self.bits is None else self.bits
        compressed = math.ceil((self.elements - self.exact) * self.share)
        exact_bits = self.exact * self.share * entry_bits
        return (self.compression.bits(compressed, entry_bits) + exact_bits) / 8

    @property
    def is_lossy(self) -> bool:
        """Whether its compression changes it."""
        return self.compression is not None and self.compression.lossy

    @property
    def in_full(self) -> Vector:
        """The vector as sent to a client that has nothing from which a compressed one could differ."""
        return replace(self, compression=None) if self.is_lossy else self


@dataclass(frozen=True, slots=True)
class Memory:
    """A vector that each client (or the server, for each client) keeps between dispatches.

    Attributes:
        elements: length of a client's row.
        initial: the row of a client that has not participated yet, (elements,), or a function that makes it from the
            initial model (P,); zeros if None.
        keeper: the side that reads and writes it: local updates (``client``) or aggregations (``server``); a
            ``shared`` row is written by the aggregation of the client's update and read by both, only in methods that
            are :attr:`Method.only_synchronous`.
        dtype: data type; the run's floating-point type if None.
        kept_when_lost: whether a client that finished its work keeps its new row even if the server never uses its
            update; only for memories of clients in methods that are :attr:`Method.only_synchronous`.
        restarts: whether it ends when the client's edge server receives a model of the cloud.
        in_place: whether the rows may be in :attr:`Cohort.in_place` instead of :attr:`Cohort.memory`.
        follows: uploaded vectors with which a row of a client moves, because the server adds up the same moves, and the
            factor of each: the row grows by the factor times the vector. If an upload is lossy, the row then grows by
            what the server decodes. Empty if nothing at the server depends on the row; None, which excludes lossy
            uploads, if neither is declared.
    """

    elements: int
    initial: Tensor | Callable[[Tensor], Tensor] | None = None
    keeper: Literal["client", "server", "shared"] = "client"
    dtype: torch.dtype | None = None
    kept_when_lost: bool = False
    restarts: bool = False
    in_place: bool = False
    follows: Mapping[str, Factor] | None = None

    def initial_row(self, model: Tensor) -> Tensor | None:
        """The row of a client that has not participated yet, given the initial model (P,); None for zeros."""
        return self.initial(model) if callable(self.initial) else self.initial


@dataclass(frozen=True, slots=True)
class Prologue:
    """Work of all clients before the first round; see :meth:`Method.prologue`.

    Attributes:
        download, upload: the vectors that are sent, in place of those of a round.
        updates: number of updates to wait for, from clients that come online at any time; None to wait for the clients
            online at the start.
    """

    download: Sequence[Vector]
    upload: Sequence[Vector]
    updates: int | None = None


@dataclass(frozen=True, slots=True)
class Cohort:
    """B dispatches that are trained together, sorted by number of steps, most first.

    The learning plane chooses the groups, and the choice never changes a result: row i must depend on row i alone.

    Attributes:
        clients, sequences, versions, rounds: (B,) int64 arrays, as in :class:`fedsim.vocabulary.timeline.Train`.
        steps: local steps that each performs, (B,) int64.
        steps_assigned: local steps assigned to each, (B,) int64.
        learning_rates: local learning rate of each, (B,) in the run's dtype.
        samples: training samples of each client, (B,) int64.
        in_full: whether the download of each contained everything, as a client's first one does, (B,) bool.
        down: vectors received, name to (B, elements); read-only.
        memory: the clients' own and shared memories before this dispatch, name to (B, elements); copies, which a local
            update may change.
        in_place: memories that a local update changes in place and does not return, name to B stored rows (elements,).
    """

    clients: Ints
    sequences: Ints
    versions: Ints
    rounds: Ints
    steps: Ints
    steps_assigned: Ints
    learning_rates: Tensor
    samples: Ints
    in_full: Bools
    down: Mapping[str, Tensor]
    memory: Mapping[str, Tensor]
    in_place: Mapping[str, list[Tensor]] = field(default_factory=dict)

    def column(self, values: npt.ArrayLike, like: Tensor) -> Tensor:
        """Per-dispatch ``values`` (B,) as a (B, 1) column in the dtype and on the device of ``like``."""
        return like.new_tensor(np.asarray(values)).unsqueeze(1)


@dataclass(slots=True)
class Step:
    """One local step of the first b rows of a cohort, which are those still working.

    Attributes:
        index: number of the step, from 0.
        gradient: mini-batch gradients at ``weights``, (b, P); a rule changes it in place into the direction to descend.
        weights: local models before the step, (b, P); read-only.
        rows: ``slice(0, b)``, to cut a (B, P) matrix of the rule to the working rows.
    """

    index: int
    gradient: Tensor
    weights: Tensor
    rows: slice


LocalRule = Callable[[Step], None]
"""Turns a gradient into a direction, in place."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """The local rule ``(gradient + constant + pull x (weights - anchor)) / divisor``.

    Trainers recognize it and apply it faster than an equivalent function, up to the rounding of the last bits.

    Attributes:
        constant: (B, P); zero if None.
        pull: strength of the pull toward ``anchor``.
        anchor: (B, P); needed if there is a pull.
        divisor: divides every direction.
    """

    constant: Tensor | None = None
    pull: float = 0.0
    anchor: Tensor | None = None
    divisor: float = 1.0

    def __call__(self, step: Step) -> None:
        """Turn the gradients of a step into directions."""
        if self.pull:
            assert self.anchor is not None
            step.gradient.add_(step.weights - self.anchor[step.rows], alpha=self.pull)
        if self.constant is not None:
            step.gradient.add_(self.constant[step.rows])
        if self.divisor != 1:
            step.gradient.div_(self.divisor)

    @property
    def target(self) -> Tensor | None:
        """The anchor of the same rule without a constant; None without a pull."""
        if not self.pull or self.anchor is None or self.constant is None:
            return self.anchor if self.pull else None
        return self.anchor.sub(self.constant, alpha=1 / self.pull)


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of local training: new tensors, which the caller may change.

    Attributes:
        model: local models after the last step, (B, P).
        mean_gradient: mean over a client's steps of its gradients, after clipping, before the rule, (B, P).
        loss: training loss as the selection needs it, (B,): usually the mean over its steps.
        change: model - start, (B, P), summed separately, so that steps below the rounding of the model count in full.
    """

    model: Tensor
    mean_gradient: Tensor | None
    loss: Tensor
    change: Tensor | None = None


Midway: TypeAlias = "tuple[int, Callable[[Tensor], None]]"
"""The number of a local step, and a function called before it with the models of the rows that do it, (b, P), which it
changes in place."""
Collected: TypeAlias = Literal["mean_gradient", "change"]
"""Results of local training on request; see :class:`Trained`."""


class Trainer(Protocol):
    """Local training; the learning plane passes a trainer to :meth:`Method.local_update`."""

    def run(
        self,
        cohort: Cohort,
        start: Tensor,
        *,
        rule: LocalRule | None = None,
        steps: Ints | None = None,
        learning_rate_scale: Tensor | None = None,
        move: bool = True,
        collect: Sequence[Collected] = (),
        phase: int = 0,
        midway: Midway | None = None,
    ) -> Trained:
        """Train the cohort from ``start`` (B, P), which is left unchanged.

        Args:
            cohort: the dispatches to train.
            start: the model from which each client starts.
            rule: turns each gradient into a direction before the optimizer steps; None is plain training.
            steps: local steps in place of the cohort's, (B,), sorted most first.
            learning_rate_scale: factor on the learning rate of each parameter, (P,).
            move: if False, no steps are taken, so all gradients are computed at ``start``.
            collect: further results to return besides the models.
            phase: number of the training within the dispatch; every phase has its own order of the data.
            midway: a change of the local models between two steps.
        """

    def optimizer_state(self, cohort: Cohort) -> Tensor:
        """The state of the optimizer after the cohort's training, if it continues from an earlier one."""


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """The vectors that a cohort sends and the memories it keeps.

    Attributes:
        vectors: name to (B, elements), as :meth:`Method.upload` declares, or :attr:`Prologue.upload` in the prologue.
        memory: new rows of all memories that clients keep, name to (B, elements), or those of :attr:`Cohort.memory`
            if they have not changed; in the prologue none are needed.
        loss: mean training loss, (B,).
    """

    vectors: Mapping[str, Tensor]
    loss: Tensor
    memory: Mapping[str, Tensor] = field(default_factory=dict)


class Updates(Protocol):
    """The contributions of one aggregation, in order of arrival (C of them, possibly none).

    All arrays have shape (C,). ``multiplicity`` is how often the client was drawn, which is 1 unless selection is with
    replacement: a client drawn twice trains once and counts twice, so every mean over contributions must be weighted by
    it, as in :func:`averaging_weights`.
    """

    version: int
    time_s: float
    round: int
    attributes: Mapping[str, float]
    clients: Ints
    samples: npt.NDArray[np.int64 | np.float64]
    steps: Ints
    steps_assigned: Ints
    staleness: Ints
    groups: Ints
    multiplicity: Ints
    versions: Ints
    rounds: Ints
    learning_rates: Floats

    def __len__(self) -> int: ...

    def row(self, name: str, index: int) -> Tensor:
        """Vector ``name`` of contribution ``index``, (elements,), zero where the client trained nothing; read-only."""

    def weighted_sum(
        self, name: str, weights: npt.ArrayLike, factors: npt.ArrayLike = 1.0
    ) -> Tensor:
        """Sum over contributions of ``weights`` x ``factors`` times vector ``name``, (elements,), in order of arrival.

        Args:
            name: the vector.
            weights: how much each client counts in the mean, (C,). With submodels, an entry's sum is multiplied by the
                sum of all weights over that of the clients that trained the entry.
            factors: multiples of the vectors themselves, (C,), such as discounts for staleness; not in that ratio.
        """

    def mean(self, name: str, weights: npt.ArrayLike, otherwise: Tensor) -> Tensor:
        """Mean of vector ``name`` with ``weights`` (C,), which sum to 1 or are all 0, over the contributions that have
        an entry, (elements,); ``otherwise`` where none of them counts."""

    def memory(self, name: str, index: int) -> Tensor:
        """The row of contribution ``index``'s client in memory ``name`` (of keeper server or shared), (elements,)."""

    def remember(self, name: str, index: int, row: Tensor) -> None:
        """Replace that row."""


class Method(Component, ABC):
    """A method of federated learning.

    A method declares what it needs from the rest of the scenario, which :mod:`fedsim.composition.needs` checks.
    A need that depends on parameters is set in the constructor.

    Attributes:
        title: name as written in the literature; by default that of a user's class.
        paper: authors, title, venue, and the algorithm or equation implemented; a user's class inherits neither.
        paper_schedules: schedules under which the paper describes the method; empty if any is suitable.
        only_synchronous: why the method needs a synchronous schedule; empty if it does not.
        needs_plain_sgd: why local steps must be SGD without momentum and weight decay; empty if they need not be.
        needs_sgd: why local steps must be SGD, with or without momentum; empty if they need not be.
        needs_no_momentum: why local steps must be SGD without momentum; empty if they need not be.
        continues_models: whether clients that have finished their work in the round before continue their own models.
        personal: whether each client has a personal part of the model.
        trains_twice: whether a dispatch consists of two trainings, whose optimizers have no common state.
        spans_edges: whether it works through both levels of a run with edge servers. What the cloud remembers of an
            edge server then goes down with its model, as the vector of that name in the edge server's state.
        needs_exact: why a compression must not change some vectors on the way down, as clauses by vector.
        needs_exact_uploads: why a compression must not change uploads, as a clause; empty if it may.
        buffers_with: the uploaded vector that ends with the changes of the model's buffers (running statistics of batch
            normalization), if there is one. The server then takes the mean of their values, whatever the method does.
        needs_adapters: whether the model must have low-rank adapters.
        merges: whether the method merges adapters into the frozen matrices that they change, which are then part of the
            layout.
        weight_of_absent: a clause that says how offline clients keep a weight in the model; empty if they have none.
        averages: whether each version follows from the weighted mean of the updates alone, so that clients can compute
            it among themselves (``server.exchange``).
        combines_parts: whether the server combines the vectors of clients that train parts of the model itself, padded
            with zeros, instead of averaging each entry over the clients that trained it.
        needs_whole_model: why no client may train only a part of the model, as a clause; empty if one may.
        parts: the parts of the model that clients train, as the scenario says; a method leaves it out.
        downloads, uploads: names of the vectors that :meth:`download` and :meth:`upload` return by default.
        elements: length of these vectors; that of the model (P) unless the constructor sets it.
        server_vectors: names of further vectors (P,) of the server's state, which start at zero.
    """

    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    paper_schedules: ClassVar[Sequence[str]] = ()
    only_synchronous: str = ""
    needs_plain_sgd: str = ""
    needs_sgd: str = ""
    needs_no_momentum: str = ""
    continues_models: ClassVar[bool] = False
    personal: ClassVar[bool] = False
    trains_twice: bool = False
    spans_edges: ClassVar[bool] = False
    needs_exact: Mapping[str, str] = MappingProxyType({})
    needs_exact_uploads: str = ""
    buffers_with: str = "delta"
    needs_adapters: ClassVar[bool] = False
    merges: ClassVar[bool] = False
    weight_of_absent: str = ""
    averages: ClassVar[bool] = False
    combines_parts: ClassVar[bool] = False
    needs_whole_model: ClassVar[str] = ""
    parts: Parts | None = None

    downloads: Sequence[str] = ("model",)
    uploads: Sequence[str] = ("delta",)
    server_vectors: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """A bundled method brings the schedule of its paper, unless that is the default one."""
        super().__init_subclass__(**options)
        if is_bundled(cls) and "paper_schedules" in vars(cls):
            schedule = cls.paper_schedules[0]
            cls.companions = {} if schedule == "sync" else {"schedule": {"name": schedule}}

    def __init__(self, params: Any, context: MethodContext) -> None:
        self.params = params
        self.context = context
        self.elements = context.layout.size

    # -- traffic and memories --------------------------------------------------------------

    def download(self) -> Sequence[Vector]:
        """Vectors sent to a client with every dispatch; names are keys of the server state."""
        return [Vector(name, self.elements) for name in self.downloads]

    def first_download(self) -> Sequence[Vector]:
        """Vectors sent in addition with a client's first dispatch; only their bytes count. If the method
        :attr:`continues_models`, they are sent again to a client that missed the round before."""
        return ()

    def upload(self) -> Sequence[Vector]:
        """Vectors a client sends back; names are keys of :attr:`LocalUpdate.vectors`."""
        return [Vector(name, self.elements) for name in self.uploads]

    def of_part(self, vector: Vector, layout: Layout, elements: int) -> Vector:
        """The vector as sent by and to a client that trains a part of the model with this layout."""
        exact = min(vector.exact, self.buffers_in(elements, layout))
        return replace(vector, elements=elements, exact=exact)

    def layout_of(self, client: int) -> Layout:
        """The layout of the models that a client trains."""
        return self.context.layout

    def sends_buffers(self) -> bool:
        """Whether uploads end with the values of buffers; a method leaves it out."""
        return False

    def buffers_in(self, elements: int, layout: Layout) -> int:
        """Entries at the end of a vector of this length, of a model with this layout, that are its buffers."""
        return layout.size - layout.trainable if elements == layout.size else 0

    def memories(self) -> Mapping[str, Memory]:
        """Vectors kept for each client between its dispatches; read after :meth:`initial_state`."""
        return {}

    def prologue(self) -> Prologue | None:
        """Work of all clients before the first round; None if the method begins with the first round.

        Version 0 is then dispatched once to every client that is checked in at the start, with as many local steps as
        in a round, and :meth:`aggregate` makes version 1 from the updates that arrived, possibly none. Other clients
        begin with their initial memories.
        """
        return None

    def sent_at(self, version: int) -> Sequence[Vector]:
        """The vectors of the updates from a version: those of the prologue from version 0, if there is one."""
        prologue = None if version else self.prologue()
        return self.upload() if prologue is None else prologue.upload

    def frozen(self) -> Collection[str]:
        """Names of the parameters that no client trains, which saves their gradients."""
        return ()

    def compute_factor(self) -> float:
        """Forward and backward passes of one local step."""
        return 1.0

    def extra_passes(self) -> float:
        """Forward and backward passes of a dispatch besides those of its local steps."""
        return 0.0

    def steps_ahead(self) -> int:
        """Local steps that a client does on its own model while its last update, and then the next model, are on their
        way; they count as the first steps of its next dispatch."""
        return 0

    def vector_operations(self) -> float:
        """Additions and multiplications per parameter in one local step, beyond those of the optimizer."""
        return 0.0

    def is_fedavg(self, rounds: Rounds) -> str:
        """A clause that says why the method, with its parameters, does what FedAvg does; empty if it does not."""
        return ""

    # -- the rules --------------------------------------------------------------------------------------------------

    def initial_state(self, model: Tensor) -> ServerState:
        """Server state at version 0, from the initial model (P,): with :attr:`server_vectors`."""
        zeros = {name: model.new_zeros(model.shape) for name in self.server_vectors}
        return {"model": model, **zeros}

    def start(self, cohort: Cohort) -> Tensor:
        """The models from which the clients start, as the server knows, (B, P): those received unless overridden. A
        compressed upload named ``model`` is the difference from them."""
        return cohort.down["model"]

    def local_rule(self, cohort: Cohort) -> LocalRule | None:
        """Turns gradients into directions in :meth:`local_update`; None is plain local training."""
        return None

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """The work of a client: local training from :meth:`start` with the :meth:`local_rule` unless overridden. It
        sends the change of the model as ``delta``, or the model itself if that is what :meth:`upload` names.

        It may run on several threads at once, and on copies of this object on other devices or in other processes
        (built from the class, its parameters and a context, followed by :meth:`initial_state`), so it must not change
        the object, nor read anything that :meth:`aggregate` stored in it.
        """
        start = self.start(cohort)
        trained = trainer.run(cohort, start, rule=self.local_rule(cohort))
        if self.upload()[0].name == "model":
            return LocalUpdate({"model": trained.model}, trained.loss)
        return LocalUpdate({"delta": trained.model.sub_(start)}, trained.loss)

    @abstractmethod
    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The server state after this aggregation, with the names of :meth:`initial_state`; ``server`` and its tensors
        stay as they are."""

    def buffer_weights(self, updates: Updates) -> Floats:
        """Weights of the clients' buffers, and of their optimizers' states, in the mean, (C,), with sum 1, or 0 if none
        counts."""
        return averaging_weights(updates, getattr(self.params, "weights", "uniform"))

    def whole_model(self, state: ServerState) -> Tensor:
        """The model (P,) of a state, from the first vector that is sent down."""
        return state["model"]

    def personal_models(
        self, server: ServerState, clients: Ints, memory: Mapping[str, Tensor]
    ) -> Tensor:
        """The models that these B clients would use, (B, P); the global model unless overridden."""
        return server["model"].expand(len(clients), -1)

    def personal_parts(self) -> Sequence[str]:
        """Names of the personal tensors; all tensors in personal methods unless overridden."""
        return self.context.layout.names if self.personal else ()


def with_mixin(method: type[Method], mixin: type[Any], **attributes: Any) -> type[Method]:
    """The method with functions of ``mixin`` around its own, and these attributes; it keeps its name and its text."""
    names = {"__module__": method.__module__, "__qualname__": method.__qualname__}
    return type(
        method.__name__, (mixin, method), {**names, "__doc__": method.__doc__, **attributes}
    )


class WeightedParams(Parameters):
    """Parameters of methods that average updates."""

    weights: Literal["samples", "uniform"] = "samples"
    """Weight of a client's update: its number of training samples, or equal for all clients."""


def averaging_weights(updates: Updates, weights: Literal["samples", "uniform"]) -> Floats:
    """Weights of the contributions, (C,), with sum 1; a client drawn m times counts m times."""
    if weights not in ("samples", "uniform"):
        raise ValueError(f"weights must be 'samples' or 'uniform', not {weights!r}")
    raw = updates.multiplicity * (updates.samples if weights == "samples" else 1)
    result: Floats = raw / raw.sum()
    return result
