"""The events and dispatches of the brute-force simulator, and the interface between its modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from tests.oracle.devices import Devices, Life

FLOW, END, LEAVE, TIMER, LAST = 1, 2, 3, 4, 6
"""Classes of events of one instant, in their order (docs/time.md, "Events of one instant")."""


@dataclass(eq=False)
class Dispatch:
    """One hand-out of work."""

    number: int
    client: int
    sequence: int
    version: int
    round: int
    at: int
    steps: int
    group: int
    life: Life
    deadline: int | None = None
    handed: bool = False
    waiting: Event | None = None
    on_handed: Callable[[], None] = lambda: None
    outcome: str | None = None
    arrived: bool = False
    over: bool = False
    ended: int | None = None
    staleness: int | None = None
    entered: int | None = None
    given_up: bool = False


class Event:
    """Something that happens at an instant, unless it is called off."""

    def __init__(self, at: int, kind: int, order: int, act: Callable[[], None]) -> None:
        self.key = (at, kind, order)
        self.act = act


class Wish:
    """Something to be done as soon as one of some clients can be asked."""

    def __init__(self, act: Callable[[], None], clients: list[int]) -> None:
        self.act, self.clients = act, clients
        self.event: Event | None = None


class Server(Protocol):
    """What schedules, selections and shared links use of the simulation."""

    scenario: dict[str, Any]
    devices: Devices
    clients: int
    now: int
    busy_until: int
    finished: bool
    over: bool
    capacity: float | None
    charge: list[Fraction]
    recharging: set[int]
    needs: dict[int, Callable[[], None]]
    wishes: list[Wish]
    selection: Selection

    def add(self, at: int, kind: int, order: int, act: Callable[[], None]) -> Event: ...
    def timer(self, at: int, act: Callable[[], None]) -> Event: ...
    def call_off(self, event: Event | None) -> None: ...
    def next_chance(self, client: int) -> int: ...
    def there(self) -> list[int]: ...
    def hand_out(
        self, client: int, steps: int | None = None, group: int = 0, deadline: int | None = None
    ) -> Dispatch: ...
    def end(self, dispatch: Dispatch) -> None: ...
    def cut(self, dispatch: Dispatch) -> None: ...
    def make_version(self, updates: list[Dispatch], **attributes: Any) -> None: ...
    def count_round(self) -> None: ...
    def when_somebody(self, act: Callable[[], None], clients: list[int] | None = None) -> Wish: ...
    def forget(self, wish: Wish | None) -> None: ...


class Selection(ABC):
    """Which clients get work."""

    def __init__(self, section: dict[str, Any], server: Server) -> None:
        self.section, self.server = section, server
        self.cohort = section.get("cohort")

    @abstractmethod
    def draw(self, count: int, among: list[int]) -> list[int]:
        """At most so many of these clients."""
