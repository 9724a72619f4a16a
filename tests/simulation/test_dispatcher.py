"""Who can be given work, and when work that waits is handed out."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.simulation.dispatcher import Dispatcher
from fedsim.simulation.engine import Engine
from tests.simulation.harness import online

S = 1_000_000_000


@dataclass
class World:
    """Dispatches to three clients, and a log of those that began: seconds and client."""

    intervals: list[list[tuple[float, float]]]
    is_patient: bool = True
    log: list[tuple[float, int]] = field(default_factory=list)
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(
            self.engine,
            online(*self.intervals),
            Stream(0, Purpose.SELECTION),
            self.begin,
            lambda: None,
            is_patient=self.is_patient,
        )

    def begin(self, client: int, *_: Any) -> None:
        self.log.append((self.engine.now_ns / S, client))

    def give(self, client: int) -> Any:
        return self.dispatcher.dispatch(client)

    def at(self, time_s: float, call: Any) -> None:
        self.engine.call_at(round(time_s * S), call)

    def drawn(self) -> list[int]:
        return sorted(self.dispatcher.sample_online(3))


def test_work_is_handed_out_when_the_client_is_online_and_free() -> None:
    world = World([[(0, 100)], [(7, 100)], [(0, 3), (9, 100)]])
    for client in range(3):
        world.give(client)
    world.give(0)
    world.at(5, lambda: (world.dispatcher.release(0), world.dispatcher.look_again(0)))
    world.engine.run(None)
    assert world.log == [(0, 0), (0, 2), (5, 0), (7, 1)]


def test_nothing_is_handed_out_while_the_server_is_busy() -> None:
    world = World([[(0, 100)], [(2, 3), (6, 100)], [(0, 100)]])
    world.dispatcher.busy_until_ns = 4 * S
    world.give(0)
    world.give(1)
    world.engine.run(None)
    assert world.log == [(4, 0), (6, 1)]


def test_clients_at_work_or_with_work_waiting_are_not_drawn() -> None:
    world = World([[(0, 100)], [(0, 1), (5, 100)], [(0, 100)]])
    seen: dict[float, list[int]] = {}

    def look() -> None:
        dispatcher = world.dispatcher
        seen[world.engine.now_ns / S] = world.drawn()
        assert dispatcher.online_clients().tolist() == world.drawn()
        assert [client for client in range(3) if dispatcher.is_busy(client)] == [
            client for client in (0, 1) if client not in world.drawn()
        ]

    world.at(2, lambda: world.give(1))
    world.at(3, lambda: world.give(0))
    # Client 1 is back at 5 s. This call was set before the one that hands its work out, and comes first.
    for time_s in (0, 4, 5):
        world.at(time_s, look)
    world.engine.run(None)
    assert seen == {0: [0, 1, 2], 4: [2], 5: [2]}
    assert world.log == [(3, 0), (5, 1)]


def test_work_that_is_taken_back_frees_its_client() -> None:
    world = World([[(0, 100)], [(5, 100)], []])
    waiting = world.give(1)
    with pytest.raises(RuntimeError, match="work for client 1 is waiting already"):
        world.give(1)
    waiting.cancel()
    world.at(6, lambda: world.log.extend((6, client) for client in world.drawn()))
    world.engine.run(None)
    assert world.log == [(6, 0), (6, 1)]


def test_who_waits_is_called_at_the_next_arrival_or_when_work_ends() -> None:
    world = World([[(0, 100)], [(8, 100)], []])
    calls: list[float] = []
    world.give(0)

    def wait() -> None:
        world.dispatcher.call_when_available(lambda: calls.append(world.engine.now_ns / S))

    wait()
    wait()
    world.at(3, lambda: (world.dispatcher.release(0), world.dispatcher.look_again(0)))
    world.at(4, wait)
    world.engine.run(None)
    assert calls == [3, 3, 8]


def test_a_server_without_an_end_loses_its_patience_after_a_year() -> None:
    year = 366 * 86_400.0
    for is_patient in (True, False):
        world = World([[(0, 1)], [], []], is_patient=is_patient)
        world.give(0)
        world.dispatcher.call_when_available(lambda: None)
        world.at(year + 1, lambda world=world: world.dispatcher.look_again(0))  # type: ignore[misc]
        if is_patient:
            world.engine.run(None)
    with pytest.raises(UserError, match="waited 366 simulated days"):
        world.engine.run(None)
