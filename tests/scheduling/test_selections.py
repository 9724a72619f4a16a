"""Whom each selection draws: exact patterns, frequencies with fixed seeds, and the same draws for the same seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.scheduling.selections.bernoulli import Bernoulli, BernoulliParams
from fedsim.scheduling.turns import Turns
from tests.scheduling.worlds import NO_NETWORK, play
from tests.simulation.harness import Book, online, simulate


def draws(selection: dict[str, Any], *, clients: int, rounds: int, **world: Any) -> Book:
    """Rounds of one second in which everybody is always there, unless said otherwise."""
    return simulate(
        step_s=world.pop("step_s", [1.0] * clients),
        steps=1,
        selection=selection,
        rounds=rounds,
        **NO_NETWORK,
        **world,
    )


def by_round(book: Book) -> list[list[int]]:
    """Clients of each round in order of dispatching; rounds without clients are left out."""
    found: dict[int, list[int]] = {}
    for row in sorted(book.rows, key=lambda row: int(row["dispatch_id"])):
        found.setdefault(row["round"], []).append(row["client"])
    return [found[key] for key in sorted(found)]


def flat(rounds: list[list[int]]) -> list[int]:
    """The clients of several rounds, one after the other."""
    return [client for clients in rounds for client in clients]


def frequency(book: Book, clients: int, rounds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Share of the rounds in which each client took part."""
    return np.bincount([row["client"] for row in book.rows], minlength=clients) / rounds


# -- with replacement ----------------------------------------------------------------------------------------------


def test_with_replacement_a_client_drawn_twice_works_once_and_counts_twice() -> None:
    book = draws({"name": "uniform_with_replacement", "cohort": 10}, clients=6, rounds=50)
    for aggregate in book.aggregates:
        clients = [item.client for item in aggregate.contributions]
        assert len(set(clients)) == len(clients)
        assert sum(item.multiplicity for item in aggregate.contributions) == 10
    assert max(item.multiplicity for a in book.aggregates for item in a.contributions) > 2


def test_inclusion_with_replacement_and_without() -> None:
    """FedLGA's I13: 1 - (1 - 1/50)^10 = 0.18293 against 0.2; a client is drawn 0.2 times a round either way."""
    n, k, rounds = 50, 10, 1500
    book = draws({"name": "uniform_with_replacement", "cohort": k}, clients=n, rounds=rounds)
    included = frequency(book, n, rounds)
    # The mean over clients of independent rounds: its deviation is far below this tolerance.
    assert included.mean() == pytest.approx(1 - (1 - 1 / n) ** k, abs=0.002)
    drawn = Counter[int]()
    for aggregate in book.aggregates:
        for item in aggregate.contributions:
            drawn[item.client] += item.multiplicity
    assert sum(drawn.values()) == k * rounds
    assert all(abs(count / rounds - k / n) < 0.06 for count in drawn.values())
    without = draws({"name": "uniform", "cohort": k}, clients=n, rounds=rounds)
    assert frequency(without, n, rounds).mean() == pytest.approx(0.2, rel=1e-12)


def test_multiplicity_reaches_the_method() -> None:
    """Every version of FedAvg is the mean over draws, not over clients."""
    world = play(
        [1.0, 1.0, 1.0],
        slopes=[1.0, 10.0, 100.0],
        steps=1,
        method={"name": "fedavg"},
        selection={"name": "uniform_with_replacement", "cohort": 4},
        rounds=20,
    )
    repeated = 0
    for version, aggregate in enumerate(world.book.aggregates):
        drawn = [
            10.0**item.client for item in aggregate.contributions for _ in range(item.multiplicity)
        ]
        assert len(drawn) == 4
        assert world.w[version] - world.w[version + 1] == pytest.approx(np.mean(drawn), rel=1e-12)
        repeated += any(item.multiplicity > 1 for item in aggregate.contributions)
    assert repeated > 10


def test_sample_weighted_without_replacement() -> None:
    samples = [1, 2, 3, 4]
    book = draws({"name": "sample_weighted", "cohort": 1}, clients=4, rounds=4000, samples=samples)
    assert frequency(book, 4, 4000) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.025)
    pairs = draws({"name": "sample_weighted", "cohort": 2}, clients=4, rounds=200, samples=samples)
    assert all(len(set(clients)) == 2 for clients in by_round(pairs))


def test_sample_weighted_with_replacement() -> None:
    samples, rounds, k = [1, 2, 3, 4], 1000, 3
    book = draws(
        {"name": "sample_weighted", "cohort": k, "replacement": True},
        clients=4,
        rounds=rounds,
        samples=samples,
    )
    drawn = np.zeros(4)
    for aggregate in book.aggregates:
        for item in aggregate.contributions:
            drawn[item.client] += item.multiplicity
    assert drawn.sum() == k * rounds
    assert drawn / drawn.sum() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.025)


# -- Bernoulli -----------------------------------------------------------------------------------------------------


class _Port:
    """As much of a server as a selection needs to be built."""

    def __init__(self, clients: int, duration_s: list[float] | None = None) -> None:
        self.clients = clients
        self.now_ns = 0
        self.samples = np.ones(clients, dtype=np.int64)
        self._duration_s = duration_s or [1.0] * clients
        self.idle = np.arange(clients)
        self.losses: dict[int, float] = {}

    def stream(self, purpose: Any, *keys: int) -> Any:
        from fedsim.randomness import Stream

        return Stream(0, purpose, *keys)

    def online_clients(self) -> Any:
        return self.idle

    def expected_duration_s(self, client: int) -> float:
        return self._duration_s[client]

    def training_losses(self, dispatches: Any) -> Any:
        return np.array([self.losses[dispatch.client] for dispatch in dispatches])


def _bernoulli(clients: int, **params: Any) -> Bernoulli:
    return Bernoulli(BernoulliParams(**params), _Port(clients))  # type: ignore[arg-type]


def test_the_probabilities_of_fedsums_patterns() -> None:
    """Section 4.1 of its card: P2, the sine of P3, and the biased pattern of appendix H.8."""
    assert _bernoulli(100).probabilities(7) == pytest.approx([0.2] * 100)
    sine = _bernoulli(100, sine={})
    swing = [sine.probabilities(t)[0] for t in range(10)]
    printed = [0.14, 0.1753, 0.1971, 0.1971, 0.1753, 0.14, 0.1047, 0.0829, 0.0829, 0.1047]
    assert swing == pytest.approx(printed, abs=5.1e-5)
    biased = _bernoulli(
        100, probability=[0.5 - 0.05 * group for group in range(10)], group_size=11
    ).probabilities(0)
    assert biased[:12].tolist() == [0.5] * 11 + [0.45]
    assert biased[99] == pytest.approx(0.05)
    assert biased.sum() == pytest.approx(29.75)


def test_bernoulli_frequencies_follow_the_probabilities() -> None:
    probability, rounds = [0.1, 0.3, 0.5, 0.7, 0.9], 2000
    selection = {"name": "bernoulli", "probability": probability, "allow_empty": True}
    book = draws(selection, clients=5, rounds=rounds, schedule={"name": "sync", "min_updates": 0})
    assert frequency(book, 5, rounds) == pytest.approx(probability, abs=0.035)
    sizes = [len(aggregate.contributions) for aggregate in book.aggregates]
    empty = np.prod([1 - p for p in probability])
    assert sizes.count(0) / rounds == pytest.approx(empty, abs=0.006)
    assert len(sizes) == rounds


def test_rounds_without_anybody_are_passed_over_unless_they_are_to_count() -> None:
    selection = {"name": "bernoulli", "probability": 0.05}
    book = draws(selection, clients=4, rounds=100)
    assert len(book.aggregates) == 100
    assert all(aggregate.contributions for aggregate in book.aggregates)


def test_coins_do_not_depend_on_who_else_is_there() -> None:
    """The coin of (client, round) is the same in every world: here with and without other clients."""
    many, few = _bernoulli(40, allow_empty=True), _bernoulli(40, allow_empty=True)
    few.server.idle = np.arange(10)  # type: ignore[attr-defined]
    for _ in range(50):
        assert [client for client in many.cohort() if client < 10] == few.cohort()


def test_wrong_probabilities_are_refused() -> None:
    with pytest.raises(UserError, match="probabilities for 3 clients, and 4"):
        _bernoulli(4, probability=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="between 0 and 1"):
        BernoulliParams(probability=1.2)
    with pytest.raises(ValueError, match="all probabilities are 0"):
        BernoulliParams(probability=[0.0, 0.0])


# -- turns ---------------------------------------------------------------------------------------------------------


def test_cyclic_blocks() -> None:
    book = draws({"name": "cyclic", "cohort": 4}, clients=10, rounds=6)
    assert by_round(book) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 0, 1],
        [2, 3, 4, 5],
        [6, 7, 8, 9],
        [0, 1, 2, 3],
    ]


def test_who_is_not_there_loses_the_turn() -> None:
    """Client 1 is away during the first two rounds."""
    always = [(0.0, 1e6)]
    book = draws(
        {"name": "cyclic", "cohort": 2},
        clients=4,
        rounds=5,
        availability=online(always, [(2.5, 1e6)], always, always),
    )
    assert by_round(book) == [[0, 2], [3, 0], [2, 3], [0, 1], [2, 3]]


def test_reshuffled_cyclic_takes_everybody_once_a_lap() -> None:
    rounds = by_round(draws({"name": "reshuffled_cyclic", "cohort": 4}, clients=12, rounds=30))
    laps = [sorted(flat(rounds[start : start + 3])) for start in range(0, 30, 3)]
    assert laps == [list(range(12))] * 10
    assert len({tuple(flat(rounds[start : start + 3])) for start in range(0, 30, 3)}) == 10


def test_laps_that_no_cohort_divides_lose_no_turn() -> None:
    rounds = by_round(draws({"name": "reshuffled_cyclic", "cohort": 4}, clients=10, rounds=50))
    assert all(len(set(clients)) == 4 for clients in rounds)
    counts = Counter(flat(rounds))
    assert set(counts.values()) == {20}


def test_a_turn_that_comes_twice_in_a_draw_is_kept() -> None:
    laps = [np.array([0, 1, 2]), np.array([2, 0, 1])]
    turns = Turns(lambda lap: laps[lap % 2])
    everybody = np.arange(3)
    assert turns.take(2, everybody) == [0, 1]
    # 2 ends the first lap and begins the second.
    assert turns.take(2, everybody) == [2, 0]
    assert turns.take(2, everybody) == [2, 1]
    assert turns.take(5, everybody) == [0, 1, 2]
    assert turns.take(1, np.empty(0, dtype=np.int64)) == []


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


def test_round_robin_lets_a_client_catch_up() -> None:
    always = [(0.0, 1e6)]
    book = draws(
        {"name": "round_robin", "cohort": 2},
        clients=4,
        rounds=8,
        availability=online(always, [(3.5, 1e6)], always, always),
    )
    assert by_round(book) == [[0, 2], [3, 0], [2, 3], [0, 2], [1, 3], [1, 0], [1, 2], [3, 1]]


# -- TiFL ----------------------------------------------------------------------------------------------------------


def test_tifl_rounds_are_of_one_tier() -> None:
    step_s = [float(1 + client % 10) for client in range(20)]
    rounds = 1000
    selection = {"name": "tifl", "cohort": 3, "tiers": 5}
    book = draws(selection, clients=20, rounds=rounds, step_s=step_s)
    tiers = [{int(step_s[client] - 1) // 2 for client in clients} for clients in by_round(book)]
    assert all(len(tier) == 1 for tier in tiers)
    shares = Counter(min(tier) for tier in tiers)
    assert [shares[tier] / rounds for tier in range(5)] == pytest.approx([0.2] * 5, abs=0.04)


def test_tifl_chances_and_tiers_that_are_away() -> None:
    step_s = [1.0, 1.0, 5.0, 5.0]
    chances = {"name": "tifl", "cohort": 1, "tiers": 2, "probabilities": [1.0, 0.0]}
    book = draws(chances, clients=4, rounds=20, step_s=step_s)
    assert {row["client"] for row in book.rows} == {0, 1}
    always, never = [(0.0, 1e6)], [(9e5, 1e6)]
    half = {"name": "tifl", "cohort": 1, "tiers": 2}
    world = online(never, never, always, always)
    book = draws(half, clients=4, rounds=20, step_s=step_s, availability=world)
    assert {row["client"] for row in book.rows} == {2, 3}
    with pytest.raises(UserError, match="3 chances for 2 tiers"):
        draws(half | {"probabilities": [1, 1, 1]}, clients=4, rounds=1, step_s=step_s)


# -- REFL ----------------------------------------------------------------------------------------------------------


def test_refl_prefers_those_who_will_soon_be_gone() -> None:
    """Clients 0 to 2 are there daily from 8 to 12 o'clock, 3 to 5 from 10 to 14, 6 to 11 always.

    At 11:30 the first are drawn, who will be gone at 12, at 13:30 the second; at 5 only the others are there.
    """
    hour, days = 3600.0, 8

    def daily(start: int, end: int) -> list[tuple[float, float]]:
        return [((day * 24 + start) * hour, (day * 24 + end) * hour) for day in range(days)]

    book = draws(
        {"name": "refl", "cohort": 3, "hold_off": 0, "round_length": 0.5 * hour},
        clients=12,
        rounds=days * 48,
        step_s=[0.25 * hour] * 12,
        schedule={"name": "sync", "pause": 0.25 * hour},
        availability=online(*[daily(8, 12)] * 3, *[daily(10, 14)] * 3, *[[(0.0, 1e6)]] * 6),
    )
    drawn: dict[float, list[int]] = {5.0: [], 11.5: [], 13.5: []}
    for row in book.rows:
        day, clock = divmod(row["dispatched"] / hour, 24)
        if day >= 2 and clock in drawn:
            drawn[clock].append(row["client"])
    assert set(drawn[11.5]) == {0, 1, 2}
    assert set(drawn[13.5]) == {3, 4, 5}
    assert set(drawn[5.0]) <= set(range(6, 12))


def test_refl_lets_those_drawn_stand_back() -> None:
    rounds = by_round(draws({"name": "refl", "cohort": 2, "hold_off": 4}, clients=10, rounds=40))
    for first in range(36):
        assert len(set(flat(rounds[first : first + 5]))) == 10
    # With nobody else left, they are drawn all the same.
    assert len(by_round(draws({"name": "refl", "cohort": 2}, clients=3, rounds=9))) == 9


# -- Oort ----------------------------------------------------------------------------------------------------------


def test_oort_draws_those_who_teach_most_and_are_fast() -> None:
    """Clients 0 to 4 have high losses, the others none to speak of; client 0 is ten times slower than all."""
    centers = [[10.0]] * 5 + [[0.01]] * 15
    world = play(
        [10.0] + [1.0] * 19,
        task={"centers": centers, "curvatures": 1.0},
        lr=1e-4,
        steps=1,
        method={"name": "fedavg"},
        selection={
            "name": "oort",
            "cohort": 4,
            "exploration": 0.5,
            "exploration_min": 0.25,
        },
        rounds=200,
    )
    counts = frequency(world.book, 20, 200)
    assert counts.sum() == pytest.approx(4)
    assert counts[1:5].min() > 3 * counts[5:].max()
    assert counts[0] < 0.2 * counts[1:5].min()


def test_oort_utility_in_figures() -> None:
    """Samples x loss, clipped and scaled, plus the bonus of age, times the penalty of the slow."""
    from fedsim.scheduling.base import Dispatch
    from fedsim.scheduling.selections.oort import Oort, OortParams

    port = _Port(4)
    port.samples = np.array([10, 10, 20, 5])
    port.losses = {0: 1.0, 1: 2.0, 2: 3.0}
    params = OortParams(exploration=0.0, exploration_min=0.0, clip=1.0, preferred_percentile=50)
    oort = Oort(params, port)  # type: ignore[arg-type]
    for client, seconds in ((0, 1), (1, 2), (2, 8)):
        dispatch = Dispatch(client, client, 0, 0, 0, 1, 0)
        dispatch.arrived_ns = seconds * 10**9
        dispatch.open, dispatch.used = False, True
        oort.on_arrival(dispatch)
        oort._last_draw[client] = 1
    oort._learn()
    oort._draws = 5
    bonus = np.sqrt(0.1 * np.log(5))
    expected = [10 / 60 + bonus, 20 / 60 + bonus, (1 + bonus) * (2 / 8) ** 2]
    assert oort.utilities(np.arange(3)) == pytest.approx(expected, rel=1e-12)


def test_oort_explores_faster_clients_first() -> None:
    from fedsim.scheduling.selections.oort import Oort, OortParams

    port = _Port(20, [1.0] * 10 + [50.0] * 10)
    first: list[int] = []
    for trial in range(30):
        oort = Oort(OortParams(exploration=1.0), port)  # type: ignore[arg-type]
        oort._generators = 100 * trial
        first += oort.draw(3)
    assert np.mean(np.array(first) < 10) > 0.9


def test_oort_needs_training() -> None:
    with pytest.raises(UserError, match="needs training"):
        draws({"name": "oort", "cohort": 2}, clients=5, rounds=3)


# -- all -----------------------------------------------------------------------------------------------------------

RANDOM: list[dict[str, Any]] = [
    {"name": "uniform", "cohort": 3},
    {"name": "uniform_with_replacement", "cohort": 3},
    {"name": "sample_weighted", "cohort": 3},
    {"name": "bernoulli", "probability": 0.3},
    {"name": "reshuffled_cyclic", "cohort": 3},
    {"name": "periodic_groups", "cohort": 2, "groups": 3, "slot_rounds": 3},
    {"name": "tifl", "cohort": 3, "tiers": 3},
    {"name": "refl", "cohort": 3},
]


@pytest.mark.parametrize("selection", RANDOM, ids=lambda selection: str(selection["name"]))
def test_draws_depend_on_the_seed_alone(selection: dict[str, Any]) -> None:
    runs = [
        by_round(draws(dict(selection), clients=15, rounds=12, seed=seed)) for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
