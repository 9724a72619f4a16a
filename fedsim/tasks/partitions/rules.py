"""The partitions by a rule: even, by size, by label, or by natural group."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import (
    UNUSED,
    Assignment,
    CountedParameters,
    Partitioner,
    PartitionParameters,
    apportion,
    deal,
    raise_minimum,
)
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.formatting import format_count


class Iid(Partitioner):
    """Shuffled samples; the clients' numbers of samples differ by at most one."""

    name = "iid"
    Params = CountedParameters
    params: CountedParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        samples, clients = len(dataset.train_y), self.params.clients
        owners = np.empty(samples, dtype=np.int64)
        owners[rng.permutation(samples)] = np.arange(samples) * clients // samples
        return Assignment(owners, clients)


class QuantitySkew(Partitioner):
    """Quantity skew: shuffled samples in shares drawn from Dirichlet(alpha) over the clients (NIID-Bench, Li
    et al. 2022)."""

    name = "quantity_skew"

    class Params(CountedParameters):
        alpha: float = Field(default=0.5, gt=0)
        """Concentration of the clients' shares: with a small value, a few clients hold most samples."""
        min_samples: int = Field(default=1, ge=1)
        """Clients with fewer samples receive random samples from the clients with the most."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        clients, samples = self.params.clients, len(dataset.train_y)
        weights = rng.dirichlet(np.full(clients, self.params.alpha))
        owners = np.empty(samples, dtype=np.int64)
        owners[rng.permutation(samples)] = np.repeat(
            np.arange(clients), apportion(samples, weights)
        )
        return Assignment(
            raise_minimum(owners, clients, self.params.min_samples, rng, dataset), clients
        )


class Shards(Partitioner):
    """Label skew: each class is divided into equal shards, and each client gets P shards.

    The rule of LG-FedAvg (Liang et al. 2020), also used by FedLGA: there are P x N / classes shards of every class, any
    remaining samples go to the first shards, and the shards are assigned at random. If P x N is not a multiple of the
    number of classes, the largest classes have one more shard.
    """

    name = "shards"
    needs_classes = True

    class Params(CountedParameters):
        classes_per_client: int = Field(default=2, ge=1)
        """Number P of shards per client; it may have fewer labels, because two of its shards may have the same one."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        clients, per_client = self.params.clients, self.params.classes_per_client
        sizes = np.bincount(dataset.train_y, minlength=dataset.classes)
        present = np.flatnonzero(sizes)
        total = clients * per_client
        shards = np.zeros(dataset.classes, dtype=np.int64)
        shards[present] = total // len(present)
        largest_first = present[np.argsort(-sizes[present], kind="stable")]
        shards[largest_first[: total % len(present)]] += 1
        if total < len(present):
            raise self.misfit(
                f"{format_count(clients)} clients with {per_client} classes each cannot hold the {len(present)} "
                f"classes of {dataset.name}",
                "use more clients or more classes_per_client",
            )
        scarce = np.flatnonzero(sizes < shards)
        if len(scarce):
            lacking = int(scarce[0])
            raise self.misfit(
                f"{format_count(total)} shards need {format_count(shards[lacking])} samples of class {lacking}; "
                f"{dataset.name} has {format_count(sizes[lacking])}",
                "use fewer clients or fewer classes_per_client",
            )
        dealt = rng.permutation(np.repeat(np.arange(dataset.classes), shards))
        owners = np.full(len(dataset.train_y), UNUSED, dtype=np.int64)
        for label in present:
            holders = np.flatnonzero(dealt == label) // per_client
            rows = rng.permutation(np.flatnonzero(dataset.train_y == label))
            for holder, shard in zip(holders, np.array_split(rows, len(holders)), strict=True):
                owners[shard] = holder
        return Assignment(owners, clients)


class MajorityLabel(Partitioner):
    """One majority label per client (Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client
    Participation, 2022).

    Client i owns label floor(i x classes / N), so each label belongs to a block of adjacent clients. With probability
    ``similarity``, a sample is assigned to a client drawn uniformly; otherwise to the client with the fewest samples
    (the first of several) among those that own its label.
    """

    name = "majority_label"
    needs_classes = True

    class Params(CountedParameters):
        similarity: float = Field(default=0.05, ge=0, le=1)
        """Share of the samples that are assigned independently of their label; 0 means one label per client, 1 the same
        mix for all."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        clients, samples = self.params.clients, len(dataset.train_y)
        if clients < dataset.classes:
            raise self.misfit(
                f"{format_count(clients)} clients cannot each own one of the {dataset.classes} labels of "
                f"{dataset.name}",
                f"use at least {dataset.classes} clients",
            )
        anywhere = rng.uniform(size=samples) < self.params.similarity
        drawn = rng.integers(clients, size=samples)
        owned = np.arange(clients) * dataset.classes // clients
        # Entries (size, client); an outdated size is corrected when the entry reaches the top.
        heaps = [
            [(0, client) for client in np.flatnonzero(owned == label).tolist()]
            for label in range(dataset.classes)
        ]
        sizes = [0] * clients
        owners = np.empty(samples, dtype=np.int64)
        for row, label in enumerate(dataset.train_y.tolist()):
            if anywhere[row]:
                client = int(drawn[row])
            else:
                heap = heaps[label]
                while heap[0][0] != sizes[heap[0][1]]:
                    heapq.heapreplace(heap, (sizes[heap[0][1]], heap[0][1]))
                client = heap[0][1]
                heapq.heapreplace(heap, (sizes[client] + 1, client))
            sizes[client] += 1
            owners[row] = client
        return Assignment(owners, clients)


class _ByClass(Partitioner):
    """A partition by the number of samples of each class that each client gets."""

    needs_classes = True

    @abstractmethod
    def counts(self, dataset: Dataset, sizes: Ints, rng: np.random.Generator) -> Ints:
        """Samples of each class at each client, (N, classes), from the ``sizes`` of the classes."""

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        sizes = np.bincount(dataset.train_y, minlength=dataset.classes)
        owners = deal(self.counts(dataset, sizes, rng), dataset.train_y, rng)
        least, clients = getattr(self.params, "min_samples", 1), self.params.clients
        return Assignment(raise_minimum(owners, clients, least, rng, dataset), clients)


# Draws of the classes of all clients, and of sizes and mixes.
_CLASS_DRAWS, _DUAL_DRAWS = 1000, 100
# (fewest, most) classes per client by number of clients: FedCompass, appendix D.1, and its authors' code.
_CLASS_RANGES = {1: (10, 10), 2: (7, 8), 3: (6, 8), 4: (5, 7), 5: (5, 6), 6: (4, 6), 7: (4, 5)}


class ClassPartition(_ByClass):
    """Class partition (Li et al., FedCompass, ICLR 2024, Algorithm 4).

    Every client draws a number of classes from ``classes_min .. classes_max`` and that many random classes; this is
    repeated until each class has a holder. A class is divided among its holders by weights ~ |N(share_mean,
    share_std^2)|, rounded by largest remainders.
    """

    name = "class_partition"

    class Params(CountedParameters):
        classes_min: int | None = Field(default=None, ge=1)
        """Minimum classes per client; by default the paper's value for the number of clients (3 above 7 clients)."""
        classes_max: int | None = Field(default=None, ge=1)
        """Maximum classes per client; by default the paper's value for the number of clients (5 above 7 clients)."""
        share_mean: float = Field(default=10.0, gt=0)
        """Mean of the normal weights by which a class is divided among its holders."""
        share_std: float = Field(default=3.0, ge=0)
        """Standard deviation of these weights."""

        @model_validator(mode="after")
        def _ordered(self) -> ClassPartition.Params:
            if (self.classes_min is None) != (self.classes_max is None):
                raise ValueError("give both classes_min and classes_max, or neither")
            low, high = self.class_range
            if low > high:
                raise ValueError(f"classes_min {low} is above classes_max {high}")
            return self

        @property
        def class_range(self) -> tuple[int, int]:
            """Minimum and maximum number of classes per client."""
            if self.classes_min is not None and self.classes_max is not None:
                return self.classes_min, self.classes_max
            return _CLASS_RANGES.get(self.clients, (3, 5))

    params: Params

    def counts(self, dataset: Dataset, sizes: Ints, rng: np.random.Generator) -> Ints:
        holds = self._holders(dataset, rng)
        counts = np.zeros(holds.shape, dtype=np.int64)
        for label in range(dataset.classes):
            holders = np.flatnonzero(holds[:, label])
            if len(holders) > sizes[label]:
                raise self.misfit(
                    f"{format_count(len(holders))} clients hold class {label}, which has {format_count(sizes[label])} "
                    "samples",
                    "use fewer clients or fewer classes per client",
                )
            draws = rng.normal(self.params.share_mean, self.params.share_std, len(holders))
            counts[holders, label] = apportion(int(sizes[label]), np.abs(draws))
        return counts

    def _holders(self, dataset: Dataset, rng: np.random.Generator) -> Bools:
        clients, classes = self.params.clients, dataset.classes
        low, high = self.params.class_range
        if high > classes or clients * high < classes:
            raise self.misfit(
                f"{format_count(clients)} clients with {low} to {high} classes each do not fit the {classes} classes "
                f"of {dataset.name}",
                "set classes_min and classes_max so that every class can have a holder",
            )
        for _ in range(_CLASS_DRAWS):
            holds = np.zeros((clients, classes), dtype=bool)
            for client, number in enumerate(rng.integers(low, high + 1, clients)):
                holds[client, rng.permutation(classes)[:number]] = True
            if holds.any(axis=0).all():
                return holds
        raise self.misfit(
            f"in {_CLASS_DRAWS} draws, some class of {dataset.name} had no holder",
            "use more clients or more classes per client",
        )


class Dirichlet(_ByClass):
    """Label skew: the mixes of labels are Dirichlet(alpha) draws.

    Rules: ``client`` as in FedAU and FedSUM (one draw per client, normalized per class); ``class`` after Yurochkin
    et al. 2019 and NIID-Bench (Li et al. 2022); ``balanced`` after Hsu et al. 2019 (samples are drawn by the client's
    mix until a class is used up, then by the rest of the mix).
    """

    name = "dirichlet"

    class Params(CountedParameters):
        alpha: float = Field(gt=0)
        """Concentration: a small value means few labels per client, a large one the same mix for all clients."""
        rule: Literal["client", "class", "balanced"] = "client"
        """Meaning of the draws. client: each client draws a mix of labels, and each class is divided in proportion to
        the clients' shares of it. class: for each class, the clients' shares are drawn. balanced: each client draws a
        mix, and all clients hold equally many samples."""
        min_samples: int = Field(default=1, ge=1)
        """Clients with fewer samples receive random samples from the clients with the most."""

    params: Params

    def counts(self, dataset: Dataset, sizes: Ints, rng: np.random.Generator) -> Ints:
        clients = self.params.clients
        if self.params.rule == "class":
            shares = self._mixes(dataset.classes, clients, rng).T
        else:
            shares = self._mixes(clients, dataset.classes, rng)
        if self.params.rule == "balanced":
            return _balanced(shares, sizes, rng)
        columns = [apportion(int(size), shares[:, c]) for c, size in enumerate(sizes)]
        return np.stack(columns, axis=1)

    def _mixes(self, draws: int, size: int, rng: np.random.Generator) -> Floats:
        mixes = rng.dirichlet(np.full(size, self.params.alpha), size=draws)
        # A tiny alpha underflows to zeros or NaN, which cannot be used as weights.
        tiny = np.finfo(np.float64).tiny
        return np.maximum(np.nan_to_num(mixes, nan=tiny), tiny)


def _balanced(mixes: Floats, sizes: Ints, rng: np.random.Generator) -> Ints:
    """Samples of each class at each client; clients' totals differ by at most one, and no class is exceeded."""
    clients = len(mixes)
    total = int(sizes.sum())
    left = sizes.astype(np.int64).copy()
    counts = np.zeros(mixes.shape, dtype=np.int64)
    quotas = np.diff(np.arange(clients + 1) * total // clients)
    for client in rng.permutation(clients).tolist():
        missing = int(quotas[client])
        while missing:
            preferences = np.where(left > 0, mixes[client], 0.0)
            drawn = np.minimum(rng.multinomial(missing, preferences / preferences.sum()), left)
            counts[client] += drawn
            left -= drawn
            missing -= int(drawn.sum())
    return counts


class DualDirichlet(_ByClass):
    """Dual Dirichlet partition (Li et al., FedCompass, ICLR 2024, Algorithm 5).

    Client weights u ~ Dir(alpha1 / N, ...), label weights V_i ~ Dir(alpha2 x class shares); client i gets
    |c| u_i V_ic / sum_j u_j V_jc of the |c| samples of class c. All samples are assigned.
    """

    name = "dual_dirichlet"

    class Params(CountedParameters):
        alpha1: float | None = Field(default=None, gt=0)
        """Total concentration of the clients' sizes; by default the number of clients."""
        alpha2: float = Field(default=0.5, gt=0)
        """Total concentration of each client's label mix, divided among the classes in proportion to their sizes."""
        min_samples: int = Field(default=1, ge=1)
        """The draws are repeated until every client has at least this many samples."""

    params: Params

    def counts(self, dataset: Dataset, sizes: Ints, rng: np.random.Generator) -> Ints:
        params, clients = self.params, self.params.clients
        present = np.flatnonzero(sizes)
        concentration = (params.alpha1 or float(clients)) / clients
        for _ in range(_DUAL_DRAWS):
            size_weights = rng.dirichlet(np.full(clients, concentration))
            label_weights = rng.dirichlet(
                params.alpha2 * sizes[present] / sizes.sum(), size=clients
            )
            weights = size_weights[:, None] * label_weights
            # Very small concentrations underflow to zero or NaN.
            if not (np.isfinite(weights).all() and (weights.sum(axis=0) > 0).all()):
                continue
            counts = np.zeros((clients, dataset.classes), dtype=np.int64)
            for column, label in enumerate(present):
                counts[:, label] = apportion(int(sizes[label]), weights[:, column])
            if counts.sum(axis=1).min() >= params.min_samples:
                return counts
        raise self.misfit(
            f"{_DUAL_DRAWS} draws gave no partition in which all {format_count(clients)} clients have "
            f"{format_count(params.min_samples)} samples or more",
            "use fewer clients, a smaller min_samples, or larger alpha1 and alpha2",
        )


class Natural(Partitioner):
    """One client per natural group: writer, role, subject, center, device.

    With ``test: same_distribution`` a client's own test samples are the test samples of its group.
    """

    name = "natural"

    class Params(PartitionParameters):
        clients: int | None = Field(default=None, ge=1)
        """Number of groups to use, drawn at random; by default all."""
        min_samples: int = Field(default=1, ge=1)
        """Groups with fewer training samples are left out."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        if dataset.train_groups is None:
            raise self.misfit(
                f"data set {dataset.name} has no natural groups",
                "use iid, dirichlet or another partition that needs no groups",
            )
        counts = np.bincount(dataset.train_groups, minlength=len(dataset.group_names))
        chosen = np.flatnonzero(counts >= self.params.min_samples)
        clients = self.params.clients
        if len(chosen) < (clients or 1):
            raise self.misfit(
                f"data set {dataset.name} has {format_count(len(chosen))} groups of "
                f"{format_count(self.params.min_samples)} or more training samples, not {format_count(clients or 1)}",
                "use fewer clients or a smaller min_samples",
            )
        if clients is not None:
            chosen = np.sort(rng.permutation(chosen)[:clients])
        numbers = np.full(len(dataset.group_names), UNUSED, dtype=np.int64)
        numbers[chosen] = np.arange(len(chosen))
        names = tuple(dataset.group_names[group] for group in chosen)
        return Assignment(numbers[dataset.train_groups], len(chosen), names)

    def assign_test(
        self, dataset: Dataset, assignment: Assignment, rng: np.random.Generator
    ) -> Ints:
        """The test samples of each client's group; by label if the test samples have no groups."""
        if dataset.test_groups is None:
            return super().assign_test(dataset, assignment, rng)
        clients = {name: client for client, name in enumerate(assignment.names)}
        numbers = np.array([clients.get(name, UNUSED) for name in dataset.group_names], np.int64)
        owners: Ints = numbers[dataset.test_groups]
        return owners
