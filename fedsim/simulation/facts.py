"""The facts of a run that its server knows before the first event, and checks of the parts that act on them."""

from __future__ import annotations

import itertools
import operator
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from fedsim.devices.population import Population
from fedsim.errors import UserError
from fedsim.network.exchanges.collectives import Exchange
from fedsim.parts.component import is_bundled, place
from fedsim.parts.functions import called
from fedsim.randomness import Purpose, Stream
from fedsim.scheduling.base import Dispatch, Schedule, Selection, ServerPort, Timer
from fedsim.scheduling.selections.uniform import Uniform
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NS_PER_S
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.timeline import LearningPlane

if TYPE_CHECKING:
    from fedsim.simulation.story import Server


@dataclass(frozen=True, slots=True)
class Work:
    """How much work a dispatch contains.

    Attributes:
        steps: local steps of a full workload per client, (N,) int64.
        time_budget_ns: compute time per dispatch instead; each client does as many whole steps as fit, at least one.
    """

    steps: Ints
    time_budget_ns: int | None = None

    def nominal_steps(self, step_s: Floats) -> Ints:
        """Local steps of a full workload of each client at its nominal speed ``step_s`` (N,); (N,)."""
        if self.time_budget_ns is None:
            return self.steps
        step_ns = np.rint(step_s * NS_PER_S).astype(np.int64)
        whole = np.divide(
            self.time_budget_ns, step_ns, where=step_ns > 0, out=np.ones(len(step_ns))
        )
        return np.maximum(1, np.floor(whole)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of one or more servers, and the rules by which these dispatch work to them.

    Attributes:
        population: their devices.
        samples: training samples per client, (N,).
        work: work per dispatch.
        expected_duration_s: duration of a client's full workload at nominal speed and rates.
        selection, schedule: create those of a server, through which they act.
        failure_detection_ns: how long after a failure a server notices it; None if it never does.
        aggregation_ns: duration of an aggregation.
        first_updates: see :class:`fedsim.scheduling.port.ServerPort`.
        keeps_from: version from which clients keep what they learned even if a server never uses it; None if never.
        exchange: how clients exchange their updates among themselves; None if they send them to a server.
        members: the clients that belong to one edge server, by number, (M,); None for all.
        availability_of_members: when these are online; None for all clients.
    """

    population: Population
    samples: npt.NDArray[np.int64 | np.float64]
    work: Work
    expected_duration_s: Callable[[int], float]
    selection: Callable[[ServerPort], Selection]
    schedule: Callable[[ServerPort, Selection], Schedule]
    failure_detection_ns: int | None = 0
    aggregation_ns: int = 0
    first_updates: int | None = None
    keeps_from: int | None = None
    exchange: Exchange | None = None
    members: Ints | None = None
    availability_of_members: AvailabilityIndex | None = None

    @property
    def availability(self) -> AvailabilityIndex:
        """When each client of the server is online."""
        return self.availability_of_members or self.population.availability


class Facts:
    """The part of :class:`fedsim.scheduling.base.ServerPort` that answers from the scenario and the learning plane."""

    def __init__(self, clients: Clients, seed: int, plane: LearningPlane | None = None) -> None:
        members = slice(None) if clients.members is None else clients.members
        work, self._step_s = clients.work, clients.population.compute.step_s[members]
        self.samples = clients.samples[members]
        self.clients = len(self.samples)
        self.default_steps = Work(work.steps[members], work.time_budget_ns).nominal_steps(
            self._step_s
        )
        self.first_updates = clients.first_updates
        self.detects_failures = clients.failure_detection_ns is not None
        footprint = clients.population.footprint
        grid = None if footprint is None else footprint.carbon
        self.grid = None if grid is None else grid.of(members)
        self.version = 0
        self._clients = clients
        self.seed = seed
        self._plane = plane

    def expected_duration_s(self, client: int) -> float:
        """Duration of a client's full workload at nominal speed and rates."""
        members = self._clients.members
        return self._clients.expected_duration_s(
            client if members is None else int(members[client])
        )

    def step_s(self, client: int) -> float:
        """Duration of a client's local step at its nominal speed."""
        return float(self._step_s[client])

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """A random stream of this run."""
        return Stream(self.seed, purpose, *keys)

    def training_losses(self, dispatches: Sequence[Dispatch]) -> Floats:
        """Training losses that came with these updates."""
        return self._learns().training_losses([dispatch.dispatch_id for dispatch in dispatches])

    def client_accuracies(self) -> Floats:
        """Accuracy of the current model on each client's own test samples, (N,)."""
        return self._learns().client_accuracies(self.version)

    def _learns(self) -> LearningPlane:
        if self._plane is None:
            raise UserError(
                "a selection by training losses or accuracies needs training",
                where="server.selection",
                hint="leave out --timing-only, or choose another selection",
            )
        return self._plane


def check_rules(clients: Clients, seed: int) -> None:
    """Check that schedule and selection accept their parameters and the facts of the run."""
    facts = cast(ServerPort, Facts(clients, seed))
    selection = clients.selection(facts)
    schedule = clients.schedule(facts, selection)
    takes_all = type(selection) is Uniform and selection.cohort_size() >= facts.clients
    if not (schedule.draws() or takes_all):
        instead = f", or set server.schedule.{schedule.draws_if}" if schedule.draws_if else ""
        raise UserError(
            f"under the {called(type(schedule))} schedule all clients participate all the time, so it takes no "
            "selection",
            where="server.selection",
            hint=f"leave it out{instead}",
        )


def check_dispatches(schedule: Schedule, server: Server) -> None:
    """Let a user's schedule raise an error if it dispatches to no client, or a wrong number of steps."""
    if is_bundled(type(schedule)):
        return
    dispatch = server.dispatch

    def checked(client: int, *, steps: Any = None, **options: Any) -> Timer:
        if not 0 <= operator.index(client) < server.clients:
            raise ValueError(
                f"dispatches to client {client}; clients are 0 to {server.clients - 1}"
            )
        if not (steps is None or callable(steps)) and operator.index(steps) < 0:
            raise ValueError(f"dispatches {steps} local steps")
        return dispatch(client, steps=steps, **options)

    setattr(server, "dispatch", checked)  # noqa: B010 - a method cannot be assigned


def check_draws(selection: Selection, server: Server) -> None:
    """Let a user's selection raise an error if it draws anything but different available clients, or too many; one that
    ships with fedsim is not checked, so that it costs nothing.

    Arrays of clients become lists. ``server.empty_draws`` counts draws of nobody although clients are available.
    """
    for name in ("draw", "draw_among", "cohort"):
        function = getattr(selection, name)
        if not is_bundled(function):
            setattr(selection, name, partial(_checked, selection, server, function))


def _checked(
    selection: Selection,
    server: Server,
    draw: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> list[int]:
    available = set(selection.available().tolist())
    value = draw(*args, **kwargs)
    clients, is_cohort = server.clients, draw.__name__ == "cohort"
    count = clients if is_cohort else args[0] if args else kwargs["count"]
    problem, drawn = "", []
    hint = "return a list of at most count clients, such as self.available()[:count].tolist()"
    try:
        drawn = [operator.index(client) for client in itertools.islice(value, clients + count + 1)]
    except TypeError:
        problem = f"returns {reprlib.repr(value)}, not a list of clients"
    outside = [client for client in drawn if not 0 <= client < clients]
    absent = set() if is_cohort or selection.with_replacement else set(drawn) - available
    if outside:
        problem = f"draws client {outside[0]}; clients are 0 to {clients - 1}"
    elif len(set(drawn)) < len(drawn):
        problem = f"draws a client more than once: {reprlib.repr(drawn)}"
        hint = (
            "return different clients; to draw some more than once, derive the class from "
            "fedsim.scheduling.drawing.Replacing and return self.counted(drawn)"
        )
    elif absent:
        problem = f"draws client {min(absent)}, which is offline or busy now"
    elif len(drawn) > count:
        problem = f"draws {len(drawn)} clients, but count is {count}"
    if problem:
        raise UserError(problem, where=place(type(selection), draw.__name__), hint=hint)
    if not drawn and available and count > 0 and not is_cohort:
        server.empty_draws += 1
    return drawn
