"""What a process receives, when and how often, and the mistakes of writing one; every dispatch is 10 steps of 1 s."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.scheduling import base
from fedsim.scheduling.base import ANYTHING, Round, Schedule, WakeUp
from tests.scheduling.worlds import NO_NETWORK
from tests.simulation.harness import Book, online, simulate

Run = Callable[[Any], Iterator[Any]]


def play(run: Any, clients: int = 3, until_s: float = 100, **world: Any) -> Book:
    """A world under the schedule with this process."""
    kind = type("Own", (Schedule,), {"run": run, "Params": Parameters})
    return simulate(
        step_s=[1.0 + client for client in range(clients)],
        schedule={"name": kind},
        until_s=until_s,
        **{**NO_NETWORK, **world},
    )


def test_what_happens_while_a_process_waits_for_one_wake_up_alone_is_received_afterwards() -> None:
    received: list[tuple[float, object]] = []

    def run(self: Any) -> Any:
        server = self.server
        for client in range(4):
            server.dispatch(client)
        self.at(15_000_000_000, "timer")
        never = self.after(20)
        canceled = self.after(60)
        alone = self.after(35)
        assert (yield alone) is alone
        never.cancel()  # although it has come
        canceled.cancel()
        while True:
            event = yield ANYTHING
            what = event.value if isinstance(event, WakeUp) else (event.client, event.arrived)
            received.append((server.now_ns / 1e9, what))

    gone = online([(0, 1e6)], [(0, 1e6)], [(0, 25)], [(0, 1e6)])
    play(run, clients=4, availability=gone)
    # Clients 0 and 1 arrive at 10 s and 20 s, client 2 leaves at 25 s, client 3 arrives at 40 s.
    assert received == [
        (35, (0, True)),
        (35, "timer"),
        (35, (1, True)),
        (35, (2, False)),
        (40, (3, True)),
    ]


def test_a_wake_up_that_has_happened_is_not_waited_for_nor_received_again() -> None:
    times = []

    def run(self: Any) -> Any:
        first, second = self.after(10), self.after(20)
        yield second
        yield first
        yield first
        times.append(self.server.now_ns)
        third = self.after(5)
        assert (yield ANYTHING) is third
        times.append(self.server.now_ns)

    play(run)
    assert times == [20_000_000_000, 25_000_000_000]


def test_a_process_waits_for_the_end_of_another() -> None:
    results = []

    def counted(self: Any, client: int) -> Any:
        self.server.dispatch(client)
        dispatch = yield ANYTHING
        return dispatch.client, self.server.now_ns / 1e9

    def at_once(self: Any) -> Any:
        return "done"
        yield

    def run(self: Any) -> Any:
        self.processes: list[Any] = []
        for client in range(3):
            self.processes.append(self.begin(counted(self, client)))
        slowest, *others = reversed(self.processes)
        assert (yield slowest).value == (2, 30)
        results.extend(process.value for process in others)
        results.append((yield self.begin(at_once(self))).value)

    kind = {"process_of": lambda self, dispatch: self.processes[dispatch.client]}
    simulate(
        step_s=[1.0, 2.0, 3.0],
        schedule={"name": type("Own", (Schedule,), {"run": run, "Params": Parameters, **kind})},
        until_s=50,
        **NO_NETWORK,
    )
    assert results == [(1, 20), (0, 10), "done"]


@pytest.mark.parametrize(("cut", "outcomes"), [(False, ["late"] * 2), (True, ["cut"] * 2)])
def test_an_update_after_its_round_is_late_or_its_client_cut(
    cut: bool, outcomes: list[str]
) -> None:
    def run(self: Any) -> Any:
        current = Round(self.server, range(3))
        assert current.receive((yield ANYTHING))
        assert current.left == 2
        current.close(cut=cut)
        raise AssertionError((yield ANYTHING))

    assert list(play(run).outcomes().values()) == ["aggregated", *outcomes]


@pytest.mark.parametrize("cut", [False, True])
def test_a_round_counts_what_arrived_while_its_process_waited_for_one_wake_up_alone(
    cut: bool,
) -> None:
    def run(self: Any) -> Any:
        current = Round(self.server, range(3))
        yield self.after(25)
        current.close(cut=cut)
        assert [dispatch.client for dispatch in current.arrived] == [0, 1]
        while True:
            assert not current.receive((yield ANYTHING))

    outcomes = play(run).outcomes()
    assert list(outcomes.values()) == ["aggregated"] * 2 + ["cut" if cut else "late"]


def no_yield(self: Any) -> Any:
    self.server.dispatch(0)


def no_from(self: Any) -> Any:
    clients = yield self.cohort()
    self.server.dispatch(clients[0])


def no_yield_from(self: Any) -> Any:
    for client in self.cohort():
        self.server.dispatch(client)
    yield


def too_much_from(self: Any) -> Any:
    yield from self.after(1)


def a_number(self: Any) -> Any:
    yield 60


@pytest.mark.parametrize(
    ("run", "message", "hint"),
    [
        (no_yield, "has no `yield`", "write `event = yield`"),
        (no_from, "run waits for <generator", "clients = yield from self.cohort()"),
        (no_yield_from, "not a client", "clients = yield from self.cohort()"),
        (too_much_from, "waited for with `yield`", "not `yield from`"),
        (a_number, "run waits for 60", "self.after(60)"),
    ],
)
def test_a_forgotten_yield_or_from_is_said_in_a_sentence(run: Run, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        play(run)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("waits", [lambda self: self.after(0), lambda self: self.server_free()])
def test_a_schedule_that_spins_at_one_instant_is_an_error(
    waits: Callable[[Any], WakeUp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_WAITS_AT_ONCE", 1000)

    def run(self: Any) -> Any:
        yield self.after(2)
        while True:
            yield waits(self)

    with pytest.raises(UserError, match="the clock stands still at 2 s"):
        play(run)


@pytest.mark.parametrize(
    ("per_round", "version_rounds"),
    [(1, [0, 1]), (2, [0, 0, 1, 1]), (3, [0, 0, 0, 1, 1, 1]), (None, [0, 1])],
)
def test_a_round_has_the_versions_that_do_not_end_it(
    per_round: int | None, version_rounds: list[int]
) -> None:
    """The run ends after two rounds; the rounds of a schedule that has none are its versions."""

    def run(self: Any) -> Any:
        for client in range(3):
            self.server.dispatch(client)
        while True:
            event = yield
            ends = (
                {}
                if per_round is None
                else {"closes_round": not (self.server.version + 1) % per_round}
            )
            self.server.aggregate([event], **ends)
            self.server.dispatch(event.client)

    book = play(run, rounds=2)
    assert [aggregate.round for aggregate in book.aggregates] == version_rounds
    versions = len(version_rounds)
    rounds_of_versions = [*version_rounds, 2]
    for row in book.rows:
        assert row["round"] == rounds_of_versions[min(row["version"], versions)]


@pytest.mark.parametrize(("announced", "aggregated"), [(True, 4), (False, 2)])
def test_clients_stop_in_time_for_the_deadline_that_their_round_announces(
    announced: bool, aggregated: int
) -> None:
    def run(self: Any) -> Any:
        deadline = self.after(25)
        current = Round(self.server, range(4), 25_000_000_000 if announced else None)
        while current.left and (event := (yield)) is not deadline:
            current.receive(event)
        current.close()
        yield self.after(1000)

    book = play(run, clients=4, partial_work="send", rounds=1)
    (aggregate,) = book.aggregates
    assert len(aggregate.contributions) == aggregated


@pytest.mark.parametrize("use", ["aggregate", "discard"])
def test_an_update_is_used_once(use: str) -> None:
    def run(self: Any) -> Any:
        self.server.dispatch(0)
        event = yield
        self.server.aggregate([event])
        self.server.aggregate([event]) if use == "aggregate" else self.server.discard(event)

    with pytest.raises(ValueError, match="dispatch 0 of client 0 has no update to aggregate"):
        play(run)
