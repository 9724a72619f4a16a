"""The steps of an all-reduce, against the sums that they compute."""

import numpy as np
import pytest

from fedsim.network.exchanges.collectives import Exchange, Ring, Through, Tree
from fedsim.parts.catalog import CATALOG
from fedsim.parts.parameters import Parameters


def test_the_exchanges() -> None:
    assert list(CATALOG.parts("exchange")) == ["ring", "server", "tree"]
    assert list(Through(Parameters()).steps(4)) == []


@pytest.mark.parametrize("members", range(1, 18))
def test_a_ring_leaves_the_sum_at_every_member(members: int) -> None:
    """Each step moves the chunk that the textbook's ring moves; the sum of every chunk ends everywhere."""
    chunks = np.random.default_rng(members).integers(0, 99, (members, members))
    held = chunks.copy()
    for number, step in enumerate(Ring(Parameters()).steps(members)):
        assert step.share == 1 / members
        before = held.copy()
        for source, target in step.hops:
            chunk = (source - number) % members
            added = before[target, chunk] if number < members - 1 else 0
            held[target, chunk] = before[source, chunk] + added
    assert (held == chunks.sum(0)).all()


@pytest.mark.parametrize("members", range(1, 18))
def test_a_tree_leaves_the_sum_at_every_member(members: int) -> None:
    values = np.random.default_rng(members).integers(0, 99, members)
    held, depth = values.copy(), (members - 1).bit_length()
    steps = list(Tree(Parameters()).steps(members))
    assert len(steps) == 2 * depth
    for number, step in enumerate(steps):
        busy = [one for hop in step.hops for one in hop]
        assert len(busy) == len(set(busy))  # one transfer per member and step
        for source, target in step.hops:
            held[target] = held[source] + (held[target] if number < depth else 0)
    assert (held == values.sum()).all()


@pytest.mark.parametrize("kind", [Ring, Tree])
def test_one_member_exchanges_nothing(kind: type[Exchange]) -> None:
    assert not any(step.hops for step in kind(Parameters()).steps(1))
