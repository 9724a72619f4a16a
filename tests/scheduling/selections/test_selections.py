"""Which clients each selection draws: fixed orders by hand, random draws by their probabilities."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scheduling.base import Dispatch
from fedsim.scheduling.selections.learned import Oort
from fedsim.scheduling.selections.tifl import (
    TiFLAdaptive,
    probabilities,
)
from fedsim.scheduling.selections.uniform import Bernoulli
from tests.composition.worlds import digits, timed
from tests.scheduling.worlds import NO_NETWORK, play
from tests.simulation.harness import Book, online, simulate

ALWAYS, NEVER = [(0.0, 1e6)], [(9e5, 1e6)]


# -- worlds ------------------------------------------------------------------------------------------------------------


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
    clients: dict[int, list[int]] = {}
    for row in sorted(book.rows, key=lambda row: int(row["dispatch_id"])):
        clients.setdefault(row["round"], []).append(row["client"])
    return [clients[key] for key in sorted(clients)]


def flat(rounds: list[list[int]]) -> list[int]:
    """The clients of several rounds, one after the other."""
    return [client for clients in rounds for client in clients]


def frequency(book: Book, clients: int, rounds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Share of the rounds in which each client took part."""
    return np.bincount([row["client"] for row in book.rows], minlength=clients) / rounds


class Port:
    """As much of a server as a selection needs to be built."""

    def __init__(self, clients: int, duration_s: list[float] | None = None) -> None:
        self.clients = clients
        self.now_ns = 0
        self.samples = np.ones(clients, dtype=np.int64)
        self._duration_s = duration_s or [1.0] * clients
        self.idle = np.arange(clients)
        self.losses: dict[int, float] = {}
        self.accuracies: list[float] = []

    def stream(self, purpose: Any, *keys: int) -> Any:
        from fedsim.randomness import Stream

        return Stream(0, purpose, *keys)

    def online_clients(self) -> Any:
        return self.idle

    def expected_duration_s(self, client: int) -> float:
        return self._duration_s[client]

    def training_losses(self, dispatches: Any) -> Any:
        return np.array([self.losses[dispatch.client] for dispatch in dispatches])

    def client_accuracies(self) -> Any:
        return np.array(self.accuracies)


# -- every selection ---------------------------------------------------------------------------------------------------


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


# -- uniform draws -----------------------------------------------------------------------------------------------------


def test_every_pair_is_drawn_equally_often() -> None:
    """Six pairs of four clients in 1,200 rounds: 200 each, within four standard deviations."""
    rounds = by_round(draws({"name": "uniform", "cohort": 2}, clients=4, rounds=1200))
    pairs = Counter(tuple(sorted(clients)) for clients in rounds)
    assert len(pairs) == 6
    assert max(abs(count - 200) for count in pairs.values()) < 4 * (1200 * 5 / 36) ** 0.5


@pytest.mark.parametrize("clients", [1, 5])
def test_without_a_cohort_everybody_is_drawn(clients: int) -> None:
    rounds = by_round(draws({"name": "uniform"}, clients=clients, rounds=2))
    assert [sorted(round_) for round_ in rounds] == [list(range(clients))] * 2


def test_with_replacement_a_client_drawn_twice_works_once_and_counts_twice() -> None:
    book = draws({"name": "uniform_with_replacement", "cohort": 10}, clients=6, rounds=50)
    for aggregate in book.aggregates:
        clients = [item.client for item in aggregate.contributions]
        assert len(set(clients)) == len(clients)
        assert sum(item.multiplicity for item in aggregate.contributions) == 10
    assert max(item.multiplicity for a in book.aggregates for item in a.contributions) > 2


def test_inclusion_with_replacement_and_without() -> None:
    """FedLGA's I13: 1 - (1 - 1/50)^10 = 0.18293 against 0.2; a client is drawn 0.2 times per round either way."""
    n, k, rounds = 50, 10, 600
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
    book = draws({"name": "sample_weighted", "cohort": 1}, clients=4, rounds=2000, samples=samples)
    assert frequency(book, 4, 2000) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.025)
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


# -- bernoulli ---------------------------------------------------------------------------------------------------------


def _bernoulli(clients: int, **params: Any) -> Bernoulli:
    return Bernoulli(Bernoulli.Params(**params), Port(clients))  # type: ignore[arg-type]


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
    with pytest.raises(UserError, match="3 probabilities for 4 clients"):
        _bernoulli(4, probability=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="less than or equal to 1"):
        Bernoulli.Params(probability=1.2)
    with pytest.raises(ValueError, match="all probabilities are 0"):
        Bernoulli.Params(probability=[0.0, 0.0])


def missing(client: int, until: float, clients: int = 4) -> dict[str, Any]:
    """A world in which one client comes later."""
    return {"availability": online(*[[(until * (i == client), 1e6)] for i in range(clients)])}


@pytest.mark.parametrize(
    ("selection", "clients", "world", "rounds"),
    [
        (
            {"name": "cyclic", "cohort": 4},
            10,
            {},
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]],
        ),
        # Client 1 is away during the first two rounds, and loses its turn.
        (
            {"name": "cyclic", "cohort": 2},
            4,
            missing(1, 2.5),
            [[0, 2], [3, 0], [2, 3], [0, 1], [2, 3]],
        ),
        # It catches up.
        (
            {"name": "round_robin", "cohort": 2},
            4,
            missing(1, 3.5),
            [[0, 2], [3, 0], [2, 3], [0, 2], [1, 3], [1, 0], [1, 2], [3, 1]],
        ),
        # The script starts again.
        ({"name": "scripted", "rounds": [[0, 2], [1]]}, 3, {}, [[0, 2], [1], [0, 2], [1]]),
    ],
)
def test_fixed_orders(
    selection: dict[str, Any], clients: int, world: dict[str, Any], rounds: list[list[int]]
) -> None:
    book = draws(selection, clients=clients, rounds=len(rounds), **world)
    assert by_round(book) == rounds


# -- in turn -----------------------------------------------------------------------------------------------------------


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


# -- scripted ----------------------------------------------------------------------------------------------------------


def test_without_rounds_the_script_is_a_queue() -> None:
    script = {"name": "scripted", "rounds": [[0, 2], [1]]}
    book = draws(script, clients=3, rounds=6, schedule={"name": "async", "concurrency": 1})
    rows = sorted(book.rows, key=lambda row: int(row["dispatch_id"]))
    assert [row["client"] for row in rows[:6]] == [0, 2, 1, 0, 2, 1]


@pytest.mark.parametrize(("cohort", "second_s"), [(2, 2.0), (None, 5.0)])
def test_over_selection_waits_for_the_cohort_of_the_script(
    cohort: int | None, second_s: float
) -> None:
    """Steps of 1, 2 and 5 s: the second round begins with the second update, or with the last."""
    book = draws(
        {"name": "scripted", "rounds": [[0, 1, 2], [0]], "cohort": cohort},
        clients=3,
        rounds=2,
        step_s=[1.0, 2.0, 5.0],
        schedule={"name": "sync", "over_selection": 1.5},
    )
    assert max(row["dispatched"] for row in book.rows) == second_s


def test_an_offline_client_gets_its_work_at_its_check_in() -> None:
    book = draws(
        {"name": "scripted", "rounds": [[0, 1]]},
        clients=2,
        rounds=1,
        **missing(1, 7.0, 2),
    )
    assert [(row["client"], row["dispatched"]) for row in book.rows] == [(0, 0), (1, 7)]


def test_scripts_that_cannot_be_followed_are_refused() -> None:
    for rounds, message in (([[0, 1], [0, 9]], "client 9"), ([[0], [1, 2, 1]], "a client twice")):
        with pytest.raises(UserError, match=f"round 1 .*names {message}"):
            draws({"name": "scripted", "rounds": rounds}, clients=3, rounds=1)


# -- periodic_groups ---------------------------------------------------------------------------------------------------


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
    world = online(*[ALWAYS] * 2, *[NEVER] * 2, *[ALWAYS] * 2)
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


# -- tifl --------------------------------------------------------------------------------------------------------------


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
    half = {"name": "tifl", "cohort": 1, "tiers": 2}
    world = online(NEVER, NEVER, ALWAYS, ALWAYS)
    book = draws(half, clients=4, rounds=20, step_s=step_s, availability=world)
    assert {row["client"] for row in book.rows} == {2, 3}
    with pytest.raises(UserError, match="3 probabilities for 2 tiers"):
        draws(half | {"probabilities": [1, 1, 1]}, clients=4, rounds=1, step_s=step_s)


NAN = float("nan")


def adaptive(port: Port, **params: Any) -> TiFLAdaptive:
    """Two tiers of two clients, unless said otherwise."""
    return TiFLAdaptive(TiFLAdaptive.Params(**({"tiers": 2} | params)), port)  # type: ignore[arg-type]


def port_of_four(accuracies: list[float]) -> Port:
    """Clients 0 and 1 are fast, 2 and 3 slow."""
    port = Port(4, [1.0, 1.0, 5.0, 5.0])
    port.accuracies = accuracies
    return port


@pytest.mark.parametrize(
    ("accuracies", "credits", "expected"),
    [
        ([0.5, 0.2, 0.9], [1, 1, 1], [2 / 6, 3 / 6, 1 / 6]),
        ([0.5, 0.5, 0.1], [1, 1, 1], [2 / 6, 1 / 6, 3 / 6]),
        ([0.5, 0.2, 0.9], [1, 0, 1], [2 / 3, 0, 1 / 3]),
        ([0.5, 0.2, 0.9], [0, 0, 0], [2 / 6, 3 / 6, 1 / 6]),
        ([0.3], [1], [1]),
    ],
)
def test_probabilities_by_hand(
    accuracies: list[float], credits: list[int], expected: list[float]
) -> None:
    """Of n tiers with credits: n / D for the lowest accuracy, D = n (n + 1) / 2; equal ones in order."""
    assert probabilities(np.array(accuracies), np.array(credits) > 0) == pytest.approx(expected)


def test_probabilities_change_when_the_last_tier_has_not_improved() -> None:
    """Measured before draws 0, 2, 4 and 6; tier accuracies 0.6 and 0.3, then higher, then equal, then swapped."""
    port = port_of_four([0.5, 0.7, 0.2, 0.4])
    selection = adaptive(port, interval=2)
    chances = []
    for accuracies in ([0.5, 0.7, 0.2, 0.4], [0.6, 0.8, 0.3, 0.5], None, [0.0, 0.2, 0.1, 0.3]):
        port.accuracies = accuracies or port.accuracies
        for _ in range(2):
            (client,) = selection.draw(1)
            assert client in range(4)
        chances.append(selection._chances.tolist())
    assert chances[:2] == [[1.0, 1.0], [1.0, 1.0]]
    assert chances[2] == pytest.approx([1 / 3, 2 / 3])
    assert chances[3] == pytest.approx([2 / 3, 1 / 3])


def test_clients_without_test_samples_do_not_count() -> None:
    selection = adaptive(port_of_four([NAN, 0.7, 0.2, 0.4]))
    assert selection._tier_accuracies() == pytest.approx([0.7, 0.3])
    selection = adaptive(port_of_four([NAN, NAN, 0.2, 0.4]))
    assert selection._tier_accuracies() == pytest.approx([np.inf, 0.3])


def test_credits_run_out() -> None:
    """One draw of the fast tier and two of the slow one; then credits are ignored."""
    selection = adaptive(port_of_four([0.5] * 4), credits=[1, 2], interval=100)
    fast = [selection.draw(2)[0] < 2 for _ in range(3)]
    assert sum(fast) == 1
    further = [selection.draw(2)[0] < 2 for _ in range(40)]
    assert 5 < sum(further) < 35


def test_a_tier_without_credits_works_if_no_other_is_there() -> None:
    port = port_of_four([0.5] * 4)
    selection = adaptive(port, credits=1, interval=100)
    port.idle = np.array([0, 1])
    assert [len(selection.draw(2)) for _ in range(3)] == [2, 2, 2]
    port.idle = np.arange(4)
    assert set(selection.draw(2)) == {2, 3}


def test_a_tier_that_lost_its_probability_works_if_no_other_is_there() -> None:
    """The fast tier has no credits when the probabilities change, and is then the only one available."""
    port = port_of_four([0.5] * 4)
    selection = adaptive(port, credits=[0, 100], interval=1)
    assert [selection.draw(2)[0] >= 2 for _ in range(3)] == [True] * 3
    assert selection._chances.tolist() == [0.0, 1.0]
    port.idle = np.array([0, 1])
    assert set(selection.draw(2)) == {0, 1}


def test_credits_must_be_one_per_tier() -> None:
    with pytest.raises(UserError, match="3 credits for 2 tiers"):
        adaptive(port_of_four([0.5] * 4), credits=[1, 2, 3])


def world(test: str | None) -> dict[str, Any]:
    """Digits with tiers of four clients."""
    scenario = digits(
        server={"selection": {"name": "tifl_adaptive", "cohort": 2, "tiers": 3, "interval": 2}}
    )
    scenario["task"]["partition"] |= {} if test is None else {"test": test}
    return scenario


def test_clients_need_test_samples(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="own test samples, which this task lacks"):
        fedsim.run(world(None), tmp_path / "run")
    with pytest.raises(UserError, match="only simulates time"):
        fedsim.run(world("split"), tmp_path / "run", timing_only=True)


# -- refl --------------------------------------------------------------------------------------------------------------


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


# -- oort --------------------------------------------------------------------------------------------------------------


def test_oort_draws_those_who_teach_most_and_are_fast() -> None:
    """Clients 0 to 4 have high losses, the others none to speak of; client 0 is ten times slower than all."""
    centers = [[10.0]] * 5 + [[0.01]] * 15
    world = play(
        [10.0] + [1.0] * 19,
        task={"centers": centers, "curvatures": 1.0},
        lr=1e-4,
        steps=1,
        method={"name": "fedavg"},
        selection={"name": "oort", "cohort": 4, "exploration": 0.5, "exploration_min": 0.25},
        rounds=100,
    )
    counts = frequency(world.book, 20, 100)
    assert counts.sum() == pytest.approx(4)
    assert counts[1:5].min() > 3 * counts[5:].max()
    assert counts[0] < 0.2 * counts[1:5].min()


def test_oort_utility_in_figures() -> None:
    """Samples x root mean squared loss, clipped and scaled, plus the bonus of age, times the penalty of the slow."""
    port = Port(4)
    port.samples = np.array([10, 10, 20, 5])
    port.losses = {0: 1.0, 1: 2.0, 2: 3.0}
    params = Oort.Params(exploration=0.0, exploration_min=0.0, clip=1.0, preferred_percentile=50)
    oort = Oort(params, port)  # type: ignore[arg-type]
    for client, seconds in ((0, 1), (1, 2), (2, 8)):
        dispatch = Dispatch(client, client, 0, 0, 0, 1, 0, client)
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
    port = Port(20, [1.0] * 10 + [50.0] * 10)
    first: list[int] = []
    for trial in range(30):
        oort = Oort(Oort.Params(exploration=1.0), port)  # type: ignore[arg-type]
        oort._generators = 100 * trial
        first += oort.draw(3)
    assert np.mean(np.array(first) < 10) > 0.9


def test_oort_needs_training() -> None:
    with pytest.raises(UserError, match="needs training"):
        draws({"name": "oort", "cohort": 2}, clients=5, rounds=3)


# -- carbon_aware ------------------------------------------------------------------------------------------------------


HOUR, ROUND = 3600.0, 43.1


def began(folder: Path, values: dict[str, list[int]], **selection: Any) -> tuple[Any, fedsim.Run]:
    """When rounds began, and the run; intensities by region and hour."""
    for name, hours in values.items():
        rows = "".join(f"2024-01-01T{hour:02}:00Z,{value}\n" for hour, value in enumerate(hours))
        (folder / f"{name}.csv").write_text(f"time,intensity g/kWh\n{rows}")
    carbon = {"file": str(folder / "{region}.csv"), "region": dict.fromkeys(values, 1)}
    scenario = timed(
        devices={"carbon": carbon},
        server={"selection": {"name": "carbon_aware", **selection}},
        stop={"rounds": 3},
    )
    run = fedsim.run(scenario, folder / "run")
    return run.dispatches.groupby("round")["dispatched_s"].min().tolist(), run


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        ("30min", [0, ROUND, 2 * ROUND]),
        # 100 at 1 h is the least of the first two hours, 50 at 3 h that of the next two; then nothing is cleaner.
        ("2h", [HOUR, 3 * HOUR, 3 * HOUR + ROUND]),
        ("4h", [3 * HOUR, 3 * HOUR + ROUND, 3 * HOUR + 2 * ROUND]),
    ],
)
def test_rounds_begin_in_the_cleanest_hour_within_the_wait(
    tmp_path: Path, wait: str, expected: list[float]
) -> None:
    times, run = began(tmp_path, {"A": [300, 100, 200, 50]}, wait=wait)
    assert times == pytest.approx(expected)
    waited = run.critical.query("cause == 'selection'")
    assert (waited["to_s"] - waited["from_s"]).sum() == pytest.approx(
        expected[-1] - 2 * ROUND, abs=1e-6
    )


def test_each_region_waits_for_its_own_hour(tmp_path: Path) -> None:
    values = {"A": [300, 100, 200, 250], "B": [300, 200, 50, 250]}
    times, run = began(tmp_path, values, wait="2h")
    first = run.dispatches[run.dispatches["round"] == 0]["client_id"]
    assert set(run.clients["region"][first]) == {"A"}
    assert times[0] == HOUR


def test_the_grid_is_needed() -> None:
    with pytest.raises(UserError, match="carbon intensity"):
        fedsim.run(timed(server={"selection": {"name": "carbon_aware"}}))
