"""Trained updates that wait for an aggregation, and the losses of their training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.errors import InvariantViolation, UserError
from fedsim.learning.contract import Named
from fedsim.learning.device import reproducible, uploaded
from fedsim.learning.memory import Budget, RowStore, StateStore, host_budget
from fedsim.methods.base import MethodContext, Vector
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.timeline import Aggregate, Train

WAITING_BYTES = 1 << 30
_WAITING_SHARE = 0.0625
# On CUDA, that many updates are multiplied at once, fewer of large models: their rows are copied into one matrix.
_ROWS_OF_A_PRODUCT = 64
_BYTES_OF_A_PRODUCT = 1 << 28


class WaitingUpdates:
    """Vectors of trained dispatches until their aggregation; those beyond a budget wait on disk.

    The bytes of ``vectors``, which clients send back in a round, count toward the budget; those of ``others``, sent
    before the first round, do not. Without a ``folder`` they wait in the system's temporary folder.

    Attributes:
        bytes_each: bytes of ``vectors`` of a dispatch.
        most_in_wave: number of dispatches that may be trained together.
        in_product: number of updates that are multiplied at once; 0 where they are added row by row.
    """

    def __init__(
        self,
        vectors: Sequence[Vector],
        dtype: torch.dtype,
        device: torch.device,
        *,
        folder: Path | None = None,
        others: Iterable[Vector] = (),
    ) -> None:
        self.dtype = dtype
        self.device = device
        self.bytes_each = sum(vector.elements for vector in vectors) * dtype.itemsize
        self.elements = Named((vector.name, vector.elements) for vector in (*others, *vectors))
        budget = host_budget(WAITING_BYTES, _WAITING_SHARE)
        self._room = self.most_in_wave = max(1, budget // max(1, self.bytes_each))
        fits = _BYTES_OF_A_PRODUCT // max(1, self.bytes_each)
        self.in_product = min(_ROWS_OF_A_PRODUCT, max(1, fits)) if device.type == "cuda" else 0
        # By dispatch: the matrices of its group, and its row in them.
        self._near: dict[int, tuple[Mapping[str, Tensor], int]] = {}
        self._far = {
            name: RowStore(elements, dtype, device, Budget(0, 0, folder))
            for name, elements in self.elements.items()
        }

    def __contains__(self, dispatch_id: int) -> bool:
        return dispatch_id in self._near or bool(self.names(dispatch_id))

    def put(self, dispatch_ids: Sequence[int], vectors: Mapping[str, Tensor]) -> None:
        """Keep a group's vectors, name to (B, elements), until :meth:`drop`."""
        if len(self._near) + len(dispatch_ids) > self._room:
            for name, rows in vectors.items():
                self._far[name].put(dispatch_ids, rows)
            return
        for row, dispatch_id in enumerate(dispatch_ids):
            self._near[dispatch_id] = (vectors, row)

    def row(self, dispatch_id: int, name: str) -> Tensor:
        """One vector of one dispatch, (elements,)."""
        if dispatch_id not in self._near:
            return self._far[name].get([dispatch_id])[0]
        vectors, row = self._near[dispatch_id]
        return vectors[name][row]

    def names(self, dispatch_id: int) -> list[str]:
        """The names of a dispatch's vectors."""
        if dispatch_id in self._near:
            return list(self._near[dispatch_id][0])
        return [name for name, store in self._far.items() if dispatch_id in store]

    def weighted_sum(
        self, dispatch_ids: Sequence[int], name: str, factors: Sequence[float]
    ) -> Tensor:
        """Sum over dispatches of ``factors`` times vector ``name``, (elements,).

        Row by row, so that the result does not depend on the groups in which the rows were trained; on CUDA, where each
        row would be a launch, by products of some, whose last bits differ.
        """
        rows = (self.row(dispatch_id, name) for dispatch_id in dispatch_ids)
        if self.in_product and len(factors):
            pieces = []
            for start in range(0, len(factors), self.in_product):
                few = np.array(factors[start : start + self.in_product])
                pieces.append(self.product(few[None], list(itertools.islice(rows, len(few))))[0])
            return pieces[0] if len(pieces) == 1 else torch.stack(pieces).sum(0)
        total = torch.zeros(self.elements[name], dtype=self.dtype, device=self.device)
        for row, factor in zip(rows, factors, strict=True):
            total.add_(row, alpha=factor)
        return total

    def product(self, factors: Floats, rows: Sequence[Tensor]) -> Tensor:
        """Sums of ``factors`` (n, R) times R rows, (n, elements), in full precision even if training uses TF32."""
        with reproducible():
            return uploaded(factors, self.device).to(self.dtype) @ torch.stack(list(rows))

    def drop(self, dispatch_id: int) -> None:
        """Forget a dispatch's vectors."""
        if self._near.pop(dispatch_id, None) is None:
            for store in self._far.values():
                store.drop(dispatch_id)

    def ids(self) -> list[int]:
        """Dispatches with waiting vectors, ascending."""
        far = {key for store in self._far.values() for key in store.keys()}  # noqa: SIM118
        return sorted(far.union(self._near))


@dataclass(slots=True)
class Combination:
    """A sum of multiples of vectors, as the factor of each; everything but adding and multiplying by numbers raises."""

    factors: Floats
    # Numbers of numpy leave a product to this class, and nothing is changed in place.
    __array_ufunc__ = __iadd__ = __isub__ = __imul__ = None

    def __add__(self, other: Combination) -> Combination:
        return Combination(self.factors + other.factors)

    def __sub__(self, other: Combination) -> Combination:
        return Combination(self.factors - other.factors)

    def __mul__(self, factor: float) -> Combination:
        return Combination(self.factors * float(factor))

    __rmul__ = __mul__


class Combinations:
    """Stands for :class:`WaitingUpdates` while a method combines them: the first factor is the model's."""

    def __init__(self, dispatch_ids: Sequence[int], name: str) -> None:
        self._units = np.eye(1 + len(dispatch_ids))
        self.model = Combination(self._units[0])
        self._columns = {(number, name): 1 + at for at, number in enumerate(dispatch_ids)}

    def row(self, dispatch_id: int, name: str) -> Combination:
        """One vector of one dispatch."""
        return Combination(self._units[self._columns[dispatch_id, name]])

    def weighted_sum(
        self, dispatch_ids: Sequence[int], name: str, factors: Sequence[float]
    ) -> Combination:
        """Sum over dispatches of ``factors`` times vector ``name``."""
        total = np.zeros(len(self._units))
        total[[self._columns[dispatch_id, name] for dispatch_id in dispatch_ids]] = factors
        return Combination(total)


def _column(of: str, field: str) -> cached_property[Ints]:
    """The numbers in a ``field`` of each item in an attribute."""
    get = attrgetter(field)
    return cached_property(
        lambda self: np.array([get(item) for item in getattr(self, of)], np.int64)
    )


class Contributions:
    """The :class:`fedsim.methods.base.Updates` of one aggregation, whose arrays are made when they are first read."""

    clients = _column("_trains", "client")
    steps = _column("_trains", "steps")
    steps_assigned = _column("_trains", "steps_assigned")
    versions = _column("_trains", "version")
    rounds = _column("_trains", "round")
    staleness = _column("_contributions", "staleness")
    groups = _column("_contributions", "group")
    multiplicity = _column("_contributions", "multiplicity")
    samples: cached_property[npt.NDArray[np.int64 | np.float64]] = cached_property(
        lambda self: self._context.samples[self.clients]
    )
    learning_rates: cached_property[Floats] = cached_property(
        lambda self: np.array([self._rate(t.round, t.dispatched_s) for t in self._trains])
    )

    def __init__(
        self,
        aggregate: Aggregate,
        trains: Sequence[Train],
        waiting: WaitingUpdates,
        store: StateStore,
        context: MethodContext,
    ) -> None:
        self.version = aggregate.version
        self.time_s = aggregate.time_s
        self.round = aggregate.round
        self.attributes = aggregate.attributes
        self._contributions = aggregate.contributions
        self._trains = trains
        self._ids = [train.dispatch_id for train in trains]
        self._waiting = waiting
        self._store = store
        self._context = context
        self._rate = context.learning_rate

    def __len__(self) -> int:
        return len(self._ids)

    def row(self, name: str, index: int) -> Tensor:
        """Vector ``name`` of contribution ``index``, (elements,)."""
        return self._waiting.row(self._ids[index], name)

    def weighted_sum(
        self, name: str, weights: npt.ArrayLike, factors: npt.ArrayLike = 1.0
    ) -> Tensor:
        """Sum over contributions of ``weights`` x ``factors`` times vector ``name``, (elements,)."""
        products = np.multiply(weights, factors, dtype=np.float64)
        if products.shape != (len(self),):
            raise ValueError(f"{len(self)} contributions but weights of shape {products.shape}")
        for index in np.flatnonzero(~np.isfinite(products)).tolist():
            raise UserError(
                f"dispatch {self._ids[index]} of client {self.clients[index]} has weight {products[index]} in version "
                f"{self.version}",
                where="server.method",
                hint="choose parameters, or a learning rate above 0, with which its weight is finite",
            )
        return self._waiting.weighted_sum(self._ids, name, products.tolist())

    def mean(self, name: str, weights: npt.ArrayLike, otherwise: Tensor) -> Tensor:
        """Mean of vector ``name`` with ``weights`` (C,); ``otherwise`` (elements,) if all are 0."""
        return self.weighted_sum(name, weights) if np.any(weights) else otherwise

    def memory(self, name: str, index: int) -> Tensor:
        """The row of contribution ``index``'s client in memory ``name``, (elements,)."""
        self._require_seen(name)
        return self._store.row(name, int(self.clients[index]))

    def remember(self, name: str, index: int, row: Tensor) -> None:
        """Replace that row."""
        self._require_seen(name)
        self._store.put(name, int(self.clients[index]), row)

    def _require_seen(self, name: str) -> None:
        if name in self._store.unseen_by_server:
            # Its value would depend on which later dispatches are already trained.
            raise ValueError(f"memory '{name}' is kept by the clients; the server cannot read it")


class LossLedger:
    """The training losses of all trained dispatches, by number.

    Attributes:
        values: losses that have been read, NaN if unknown; a loss that is NaN itself is recorded as infinite.
    """

    def __init__(self) -> None:
        self.values = np.empty(0)
        self._on_device: list[tuple[Sequence[int], Tensor]] = []

    def note(self, dispatch_ids: Sequence[int], losses: Tensor) -> None:
        """Record losses of B dispatches, (B,), which stay on the device until :meth:`settle`."""
        self._on_device.append((dispatch_ids, losses))

    def settle(self) -> None:
        """Read the losses on the device, for which it must have computed them."""
        if not self._on_device:
            return
        numbers = [number for dispatch_ids, _ in self._on_device for number in dispatch_ids]
        given = torch.cat([losses for _, losses in self._on_device]).tolist()
        self._on_device.clear()
        needed = max(numbers) + 1
        if needed > len(self.values):
            # A length that depends only on the largest number, so that equal checkpoints are equal files.
            grown = np.full(1 << needed.bit_length(), np.nan)
            grown[: len(self.values)] = self.values
            self.values = grown
        self.values[numbers] = np.where(np.isnan(given), np.inf, given)

    def lack(self, dispatch_ids: Sequence[int]) -> bool:
        """Whether the loss of one of these dispatches is not known."""
        self.settle()
        most = max(dispatch_ids, default=-1)
        return most >= len(self.values) or bool(np.isnan(self.values[list(dispatch_ids)]).any())

    def of(self, dispatch_ids: Sequence[int]) -> Floats:
        """The losses of these dispatches.

        Raises:
            UserError: one is not finite.
        """
        if self.lack(dispatch_ids):
            raise InvariantViolation(f"not all of {dispatch_ids} were submitted for training")
        losses: Floats = self.values[np.asarray(dispatch_ids, dtype=np.int64)]
        for index in np.flatnonzero(~np.isfinite(losses)).tolist():
            raise UserError(
                f"local training has diverged: the loss of dispatch {dispatch_ids[index]} is not finite, and clients "
                "are selected by it",
                where="training.optimizer.lr",
                hint="use a smaller learning rate, or clip_norm",
            )
        return losses
