"""Partitions: the assignment of samples to clients."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Component, Parameters
from fedsim.parts.functions import returned, shown, wrong_return
from fedsim.randomness import Stream
from fedsim.tasks.dataset import Dataset
from fedsim.vocabulary.arrays import Array, Bools, Ints
from fedsim.vocabulary.formatting import format_count, format_counted

UNUSED = -1
"""Owner of a sample that no client holds."""

# Keys of a partition's random generators.
_ASSIGN, _LOCAL_TEST, _SHARED_TEST = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Partition:
    """Row numbers of each client's samples, in compressed sparse row form.

    Client i holds the training rows ``train_rows[train_offsets[i] : train_offsets[i + 1]]``, in ascending order; no two
    clients hold the same row.

    Attributes:
        train_offsets: (N + 1,) int64.
        train_rows: rows of ``Dataset.train_x``, int64.
        test_offsets: (N + 1,) int64 if clients have their own test samples, else None.
        test_rows: rows of the samples named by ``test_source``.
        test_source: whether the clients' test rows refer to ``Dataset.train_x`` or ``Dataset.test_x``.
        client_names: names of the clients if they are natural groups.
    """

    train_offsets: Ints
    train_rows: Ints
    test_offsets: Ints | None = None
    test_rows: Ints | None = None
    test_source: Literal["train", "test"] = "test"
    client_names: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.train_offsets) - 1

    @property
    def samples(self) -> Ints:
        """Training samples of each client, (N,) int64."""
        return np.diff(self.train_offsets)


class PartitionParameters(Parameters):
    """Parameters that all partitions share."""

    test: Literal["none", "split", "same_distribution"] = "none"
    """The clients' own test samples: none; a share of their training samples (split); or a part of the shared test set
    with the label mix of their training samples, or of the same group with the natural partition
    (same_distribution)."""
    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of each client's samples used for testing with test: split, rounded; a client with two or more samples
    has at least one for testing and one for training."""


class CountedParameters(PartitionParameters):
    """Parameters of partitions with a configured number of clients."""

    clients: int = Field(ge=1)
    """Number of clients."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """The client of each training sample.

    Attributes:
        owners: client of each training sample, (n,) int64; :data:`UNUSED` if no client holds it.
        clients: number of clients N.
        names: names of the clients if they are natural groups.
        is_test: which samples are their client's own test samples, (n,) bool; None if none are marked.
    """

    owners: Ints
    clients: int
    names: tuple[str, ...] = ()
    is_test: Bools | None = None


class Partitioner(Component, ABC):
    """A rule that assigns samples to clients; a pure function of data set, parameters and stream.

    Attributes:
        needs_classes: whether samples are assigned by their class, so that a regression data set is refused.
    """

    Params: ClassVar[type[Parameters]] = CountedParameters
    needs_classes: ClassVar[bool] = False

    @abstractmethod
    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Assign the training samples to clients; raises :meth:`misfit` if the parameters do not fit them."""

    def misfit(self, message: str, hint: str) -> UserError:
        """The error for parameters that do not fit the dataset."""
        return UserError(message, where="task.partition", hint=hint)

    def assign_test(
        self, dataset: Dataset, assignment: Assignment, rng: np.random.Generator
    ) -> Ints:
        """Client of each shared test sample, (m,), for ``test: same_distribution``.

        Each class is divided in proportion to the clients' training samples of that class.
        """
        table = label_counts(dataset, assignment.owners, assignment.clients)
        test_classes = _classes(dataset, dataset.test_y)
        sizes = np.bincount(test_classes, minlength=dataset.classes)
        counts = np.zeros_like(table)
        for label in np.flatnonzero(table.any(axis=0)):
            counts[:, label] = apportion(int(sizes[label]), table[:, label])
        return deal(counts, test_classes, rng)

    def split(self, dataset: Dataset, stream: Stream, folder: Path | None = None) -> Partition:
        """The samples of each client; all random numbers come from ``stream`` (purpose PARTITION).

        Relative paths in the parameters refer to ``folder``, by default the current one.
        """
        if self.needs_classes and dataset.kind == "regression":
            raise self.misfit(
                f"partition {self.name} distributes classes, but data set {dataset.name} has quantities",
                "use iid, quantity_skew, natural (one client per group) or file",
            )
        samples = len(dataset.train_y)
        if isinstance(self.params, CountedParameters) and self.params.clients > samples:
            raise too_many_clients(self.params.clients, samples, dataset)
        given = self.assign(dataset, stream.generator(_ASSIGN), folder)
        assignment = returned(type(self), "assign", given, Assignment)
        clients, train = assignment.clients, assignment.owners
        self._check_owners("assign", train, samples, clients)
        used = int(np.count_nonzero(train != UNUSED))
        if clients > used:
            raise too_many_clients(clients, used, dataset)
        is_test, test = assignment.is_test, None
        if is_test is None and self.params.test == "split":
            is_test = _set_aside(train, clients, self.params.test_share, stream)
        if is_test is not None:
            test, train = np.where(is_test, train, UNUSED), np.where(is_test, UNUSED, train)
        elif self.params.test == "same_distribution":
            test = self.assign_test(dataset, assignment, stream.generator(_SHARED_TEST))
            self._check_owners("assign_test", test, len(dataset.test_y), clients)
        test_offsets, test_rows = (None, None) if test is None else compressed_rows(test, clients)
        return Partition(
            *compressed_rows(train, clients),
            test_offsets,
            test_rows,
            test_source="test" if self.params.test == "same_distribution" else "train",
            client_names=assignment.names,
        )

    def _check_owners(self, function: str, owners: Any, samples: int, clients: int) -> None:
        array = owners if isinstance(owners, np.ndarray) else np.array(None)
        if (
            array.dtype.kind not in "iu"
            or array.shape != (samples,)
            or ((array < UNUSED) | (array >= clients)).any()
        ):
            hint = f"give int64 clients 0 to {clients - 1}, ({samples},); {UNUSED} for an unused sample"
            raise wrong_return(type(self), function, f"{shown(owners)} as owners", hint)


def too_many_clients(clients: int, samples: int, dataset: Dataset, minimum: int = 1) -> UserError:
    """The error for clients that cannot all have ``minimum`` of this many samples."""
    return UserError(
        f"{format_counted(clients, 'client')} cannot share {format_counted(samples, 'training sample')} "
        f"of {dataset.name} with at least {format_count(minimum)} each",
        where="task.partition",
        hint=f"use at most {format_count(samples // minimum)} clients, or a larger data set",
    )


def compressed_rows(owners: Ints, clients: int) -> tuple[Ints, Ints]:
    """Offsets (N + 1,) and ascending rows of each client, from the owner of each row."""
    order = np.argsort(owners, kind="stable")
    unused = int(np.count_nonzero(owners == UNUSED))
    counts = np.bincount(owners[owners != UNUSED], minlength=clients)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
    return offsets, order[unused:].astype(np.int64)


def _classes(dataset: Dataset, y: Array) -> Ints:
    """Class of each sample, (n,) int64; all 0 for a regression."""
    return np.zeros(len(y), np.int64) if dataset.kind == "regression" else y


def label_counts(dataset: Dataset, owners: Ints, clients: int) -> Ints:
    """Number of training samples of each class at each client, (N, classes) int64."""
    held, classes = owners != UNUSED, dataset.classes
    labels = _classes(dataset, dataset.train_y)
    flat = np.bincount(owners[held] * classes + labels[held], minlength=clients * classes)
    return flat.reshape(clients, classes).astype(np.int64)


def partition_table(dataset: Dataset, partition: Partition) -> Ints:
    """Training samples of each label at each client, (N, classes) int64, for the report."""
    owners = np.full(len(dataset.train_y), UNUSED, dtype=np.int64)
    owners[partition.train_rows] = np.repeat(np.arange(partition.clients), partition.samples)
    return label_counts(dataset, owners, partition.clients)


def apportion(total: int, weights: npt.ArrayLike) -> Ints:
    """Integers with sum ``total`` in proportion to ``weights``, by largest remainders (ties to the first)."""
    shares = np.asarray(weights, dtype=np.float64)
    exact = total * (shares / shares.sum())
    whole: Ints = np.floor(exact).astype(np.int64)
    largest_remainder_first = np.argsort(whole - exact, kind="stable")
    whole[largest_remainder_first[: total - int(whole.sum())]] += 1
    return whole


def deal(counts: Ints, labels: Ints, rng: np.random.Generator) -> Ints:
    """Owners of samples, (n,): client i gets ``counts[i, c]`` random samples of each class c."""
    owners = np.full(len(labels), UNUSED, dtype=np.int64)
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(labels == label))
        dealt = np.repeat(np.arange(len(counts)), counts[:, label])
        owners[rows[: len(dealt)]] = dealt
    return owners


def raise_minimum(
    owners: Ints, clients: int, minimum: int, rng: np.random.Generator, dataset: Dataset
) -> Ints:
    """Give every client at least ``minimum`` samples, by moving random samples from the client with the most."""
    counts = np.bincount(owners[owners != UNUSED], minlength=clients)
    if minimum * clients > counts.sum():
        raise too_many_clients(clients, int(counts.sum()), dataset, minimum)
    short = np.flatnonzero(counts < minimum)
    if not len(short):
        return owners
    result = owners.copy()
    offsets, rows = compressed_rows(owners, clients)
    available: dict[int, list[int]] = {}
    heap = [(-int(counts[client]), int(client)) for client in np.flatnonzero(counts > minimum)]
    heapq.heapify(heap)
    for client in short.tolist():
        for _ in range(minimum - int(counts[client])):
            negative, donor = heap[0]
            if donor not in available:
                donor_rows = rows[offsets[donor] : offsets[donor + 1]]
                available[donor] = rng.permutation(donor_rows).tolist()
            result[available[donor].pop()] = client
            heapq.heapreplace(heap, (negative + 1, donor))
    return result


def _set_aside(owners: Ints, clients: int, share: float, stream: Stream) -> Bools:
    counts = np.bincount(owners[owners != UNUSED], minlength=clients)
    sizes = np.clip(np.rint(share * counts), 1, np.maximum(counts - 1, 0)).astype(np.int64)
    sizes[counts < 2] = 0
    keys = stream.hashes(np.arange(len(owners)), _LOCAL_TEST)
    order = np.lexsort((keys, owners))[np.count_nonzero(owners == UNUSED) :]
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    is_test = np.zeros(len(owners), dtype=bool)
    is_test[order[rank < np.repeat(sizes, counts)]] = True
    return is_test
