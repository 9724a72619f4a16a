"""Tiny worlds that learn: quadratic clients on the time plane's harness, with the model after every version."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.learning.learner import Learner
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import Training
from fedsim.scheduling.schedules.compass import Compass
from fedsim.tasks.kinds.quadratic import QuadraticTask
from fedsim.vocabulary.timeline import Aggregate
from tests.learning.problems import make_learner
from tests.simulation.harness import Book, simulate

NO_NETWORK = {"bytes_down": 0.0, "bytes_up": 0.0}


class Recording(Learner):
    """Executes every instruction at once and keeps what the server held after each update."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.states = [self.server]

    def submit(self, instruction: Any) -> None:
        super().submit(instruction)
        if isinstance(instruction, Aggregate):
            self.states.append(self.server)


@dataclass(frozen=True)
class Assignment:
    """A client that was put into an arrival group: times in seconds, clients and groups as the card counts them."""

    time: float
    client: int
    group: int
    steps: int
    target: float
    latest: float
    created: bool


@dataclass
class World:
    """What happened."""

    book: Book = field(init=False)
    models: list[npt.NDArray[np.float64]] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """When each version was made."""
        return [aggregate.time_s for aggregate in self.book.aggregates]

    @property
    def members(self) -> list[list[int]]:
        """Clients of each version, counted from 1."""
        return [
            [item.client + 1 for item in aggregate.contributions]
            for aggregate in self.book.aggregates
        ]

    @property
    def staleness(self) -> list[list[int]]:
        """Staleness of the updates of each version."""
        return [
            [item.staleness for item in aggregate.contributions]
            for aggregate in self.book.aggregates
        ]

    @property
    def w(self) -> list[float]:
        """The model of each version from 0, where it is one number."""
        return [float(model[0]) for model in self.models]

    def w_at(self, time: float) -> float:
        """The model after everything of this time."""
        return self.w[sum(made <= time for made in self.times)]

    def assigned(
        self, after: float = 0.0, until: float = float("inf")
    ) -> list[tuple[float, int, int, int]]:
        """(time, client from 1, group, steps) of the assignments in a span of time."""
        return [
            (item.time, item.client, item.group, item.steps)
            for item in self.assignments
            if after <= item.time <= until
        ]


def play(
    step_s: Sequence[float],
    *,
    method: dict[str, Any] | None = None,
    slopes: Sequence[float] | None = None,
    lr: float = 1.0,
    task: dict[str, Any] | None = None,
    steps: int = 100,
    samples: list[int] | None = None,
    **world: Any,
) -> World:
    """Run a world without a network; a client with slope g changes the model by -lr x steps x g."""
    given = task or {"slopes": list(slopes or [1.0] * len(step_s))}
    problem = QuadraticTask(QuadraticTask.Params(**given, samples=samples))
    training = Training(
        optimizer={"name": "sgd", "lr": lr}, dtype="float64", device="cpu", threads=1
    )
    named = dict(method or {"name": "fedcompass"})
    method_class = CATALOG.parts("method")[named.pop("name")]
    plane = make_learner(
        problem,
        training,
        method_class,
        method_class.Params(**named),
        kind=Recording,
        eager=True,
        seed=0,
        local_steps=steps,
    )
    assert isinstance(plane, Recording)
    result = World()

    def observe(schedule: Any, server: Any) -> None:
        if isinstance(schedule, Compass):
            watch(schedule, server, result.assignments)

    result.book = simulate(
        step_s=list(step_s),
        steps=steps,
        samples=samples,
        plane=plane,
        observe=observe,
        **{**NO_NETWORK, **world},
    )
    result.models = [state["model"].numpy() for state in plane.states]
    return result


def watch(schedule: Compass, server: Any, assignments: list[Assignment]) -> None:
    """Note every assignment of a Compass schedule."""
    assign = schedule.assign

    def noting(client: int, now_ns: int) -> Any:
        before = len(schedule.open)
        group, steps = assign(client, now_ns)
        assignments.append(
            Assignment(
                now_ns / 1e9,
                client + 1,
                group.number,
                steps,
                group.target_ns / 1e9,
                group.latest_ns / 1e9,
                len(schedule.open) > before,
            )
        )
        return group, steps

    schedule.assign = noting  # type: ignore[method-assign]


def slower(client: int, factor: float, at: float, until: float | None = None) -> dict[str, Any]:
    """A scripted change of speed of one client, counted from 1."""
    return {"at": at, "until": until, "clients": [client - 1], "factor": factor}
