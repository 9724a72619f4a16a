"""All-reduce: the clients of a round compute the mean of their updates among themselves.

An all-reduce is a sequence of steps. In a step, some members send a part of the update to others at the same time; the
next step begins when all of them have arrived.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from fedsim.parts.component import Component


class Step(NamedTuple):
    """Transfers that begin together.

    Attributes:
        hops: position of the sender and of the receiver of each transfer, among the members in order of their numbers.
        share: size of each transfer as a share of the update.
    """

    hops: Sequence[tuple[int, int]]
    share: float


class Exchange(Component, abc.ABC):
    """How a round exchanges its updates.

    Attributes:
        among_clients: whether the clients exchange them among themselves; otherwise through the server.
    """

    among_clients: ClassVar[bool] = True

    @abc.abstractmethod
    def steps(self, members: int) -> Iterator[Step]:
        """The steps of an all-reduce of this many members, one or more."""


class Through(Exchange):
    """Every client downloads the model from the server, and uploads its update to it."""

    name = "server"
    among_clients = False

    def steps(self, members: int) -> Iterator[Step]:
        return iter(())


class Ring(Exchange):
    """A ring of P members: 2 (P - 1) steps; in each, every member sends 1/P of the update to the next one.

    On links that are not shared it takes 2 (P - 1) times the longest step: its latency, and 1/P of the update over the
    rate of its slower end. A member sends and receives 2 (P - 1)/P of the update.
    """

    name = "ring"
    paper = (
        "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel and "
        "Distributed Computing 69(2), 2009, section 4"
    )

    def steps(self, members: int) -> Iterator[Step]:
        """A reduce-scatter and an all-gather, of P - 1 steps each."""
        hops = [(one, (one + 1) % members) for one in range(members)]
        step = Step(hops, 1 / members)
        return iter([step] * (2 * (members - 1)))


class Tree(Exchange):
    """A binomial tree: the sum goes up to the first member in ceil(log2 P) steps, and the mean down in as many.

    Each transfer is the whole update. A member has at most one transfer at a time.
    """

    name = "tree"
    paper = (
        "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High "
        "Performance Computing Applications 19(1), 2005, sections 3.2 and 3.5"
    )

    def steps(self, members: int) -> Iterator[Step]:
        """A reduction and a broadcast."""
        levels = [1 << level for level in range((members - 1).bit_length())]
        up = [
            Step([(one + gap, one) for one in range(0, members - gap, 2 * gap)], 1.0)
            for gap in levels
        ]
        yield from up
        for step in reversed(up):
            yield Step([(receiver, sender) for sender, receiver in step.hops], 1.0)
