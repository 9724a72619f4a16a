"""Rounds of two phases, against a simulation of their own."""

from __future__ import annotations

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.stories import apart, run, versions


def test_two_clients_by_hand() -> None:
    # At 25, client 1 has answered, and the updates of client 0 from 10 and 20 wait: a version. The update at 30 makes
    # another one at once. That at 40 waits for client 1, which answers at 50; the last one, also at 50, does not.
    book = run([1.0, 2.5], {"name": "ringleader"}, until_s=55)
    assert [version[:2] for version in versions(book)] == [
        (25, [0, 0, 1]),
        (30, [0]),
        (50, [0, 1]),
        (50, [0]),
    ]
    restarts = [aggregate.attributes["restart"] for aggregate in book.aggregates]
    assert restarts == [1, 0, 1, 0]


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5, unique=True))
def test_versions_against_the_algorithm(times: list[int]) -> None:
    taus = apart(times)
    count = len(taus)
    events = [(tau, client, 0) for client, tau in enumerate(taus)]
    heapq.heapify(events)
    version, kept, due, expected = 0, [], set(), []
    while len(expected) < 4 * count:
        now, client, begun = heapq.heappop(events)
        if client in due:
            due.remove(client)
            expected.append([(client, version - begun)])
            version += 1
        else:
            kept.append((client, begun))
            if not due and {each for each, _ in kept} == set(range(count)):
                expected.append([(each, version - since) for each, since in kept])
                version += 1
                kept, due = [], set(range(count)) - {client}
        heapq.heappush(events, (now + taus[client], client, version))
    book = run(taus, {"name": "ringleader"}, steps=1, rounds=4 * count)
    made = [
        [(item.client, book.row(item.dispatch_id)["version"]) for item in aggregate.contributions]
        for aggregate in book.aggregates
    ]
    delays = [
        [(client, index - begun) for client, begun in contributions]
        for index, contributions in enumerate(made)
    ]
    assert delays == expected
    # The bound of the paper; the delay of a gradient grows while its entry is used, until its round ends.
    assert max(delay for each in delays for _, delay in each) <= 2 * count - 2 or count == 1
