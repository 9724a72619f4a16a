"""Groups that participate in turn."""

from __future__ import annotations

from collections import Counter

from tests.scheduling.drawing import by_round, draws, flat
from tests.simulation.harness import online


def test_periodic_groups_in_slots_of_rounds() -> None:
    """4 groups of 5, 2 a round, slots of 5 rounds: every client exactly twice a slot."""
    selection = {"name": "periodic_groups", "groups": 4, "cohort": 2, "slot_rounds": 5}
    rounds = by_round(draws(selection, clients=20, rounds=40))
    for slot in range(8):
        clients = flat(rounds[5 * slot : 5 * slot + 5])
        first = 5 * (slot % 4)
        assert Counter(clients) == dict.fromkeys(range(first, first + 5), 2)


def test_the_first_slot_is_shorter_by_the_offset() -> None:
    selection = {"name": "periodic_groups", "groups": 2, "cohort": 1, "slot_rounds": 4}
    groups = [
        [clients[0] // 3 for clients in by_round(draws(selection | more, clients=6, rounds=12))]
        for more in ({}, {"offset": 0.75}, {"offset": "random"})
    ]
    assert groups[0] == [0] * 4 + [1] * 4 + [0] * 4
    assert groups[1] == [0] * 1 + [1] * 4 + [0] * 4 + [1] * 3
    assert groups[2] in [([0] * k + [1] * 4 + [0] * 4 + [1] * 4)[:12] for k in (1, 2, 3, 4)]


def test_periodic_groups_in_slots_of_time() -> None:
    """Rounds of 1 s for the first group and of 3 s for the second, in equal slots of 9 s."""
    selection = {"name": "periodic_groups", "groups": 2, "cohort": 1, "slot": 9}
    book = draws(selection, clients=4, rounds=24, step_s=[1.0, 1.0, 3.0, 3.0])
    groups = [clients[0] // 2 for clients in by_round(book)]
    assert groups == [0] * 9 + [1] * 3 + [0] * 9 + [1] * 3


def test_a_group_of_which_nobody_is_there_holds_nothing_up() -> None:
    """The second of three groups never comes; nobody else comes or goes, so nothing but the slots can go on."""
    always, never = [(0.0, 1e6)], [(9e5, 1e6)]
    world = online(*[always] * 2, *[never] * 2, *[always] * 2)
    rounds = {"name": "periodic_groups", "groups": 3, "cohort": 1, "slot_rounds": 3}
    book = draws(rounds, clients=6, rounds=12, availability=world)
    assert [clients[0] // 2 for clients in by_round(book)] == [0, 0, 0, 2, 2, 2] * 2
    times = {"name": "periodic_groups", "groups": 3, "cohort": 1, "slot": 5}
    for schedule in ({"name": "sync"}, {"name": "async", "concurrency": 1}):
        book = draws(times, clients=6, rounds=20, availability=world, schedule=schedule)
        expected = [*range(5), *range(10, 20), *range(25, 30)]
        assert (
            sorted({row["dispatched"] for row in book.rows if row["ended"] > row["dispatched"]})
            == expected
        )


def test_independent_draws_within_a_slot() -> None:
    selection = {
        "name": "periodic_groups",
        "groups": 2,
        "cohort": 2,
        "slot_rounds": 20,
        "order": "independent",
    }
    rounds = by_round(draws(selection, clients=10, rounds=20))
    assert {client for clients in rounds for client in clients} == set(range(5))
    assert len(set(Counter(flat(rounds)).values())) > 1
