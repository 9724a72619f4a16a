"""The events and dispatches of the brute-force simulator."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracle.devices import Life

FLOW, END, LEAVE, TIMER, LAST = 1, 2, 3, 4, 6
"""Classes of events of one instant, in their order (docs/time.md, "Events of one instant"; README.md)."""


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
    waiting: "Event | None" = None
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
