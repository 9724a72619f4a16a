"""The life of a dispatch on links whose rates change, against a simulation that advances by milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.compute.values import Values, ValuesParams
from fedsim.devices.context import DeviceContext
from fedsim.devices.population import Population, Power
from fedsim.network.traced import RateSeries, Ride, TracedNetwork
from fedsim.scenario.model import Failures
from fedsim.simulation.plan import Planner
from fedsim.simulation.workload import Workload
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import Ending
from tests.simulation.harness import handed_out, online, simulate

MS = 1_000_000
END_MS = 400
"""After this the client is offline forever."""


@dataclass(frozen=True)
class World:
    """One client: alternating times online and offline (ms), and bytes per millisecond down and up, repeated."""

    policy: str
    runs: tuple[int, ...]
    stays: bool
    down: list[int]
    up: list[int]
    latency: int
    step: int
    steps: int
    bytes_down: int
    bytes_up: int

    @cached_property
    def is_online(self) -> list[bool]:
        """For each millisecond."""
        states = [turn % 2 == 0 for turn, length in enumerate(self.runs) for _ in range(length)]
        return (states + [self.stays] * END_MS)[:END_MS]


class _Gone(Exception):
    """The dispatch is over before its end."""


@dataclass
class Walk:
    """A dispatch lived through tick by tick, in rational milliseconds."""

    world: World
    until: int = END_MS
    now: Fraction = Fraction(0)
    moved: dict[str, Fraction] = field(default_factory=dict)
    marks: dict[str, Fraction] = field(default_factory=dict)
    steps_done: int = 0
    arrives: bool = False
    ended: Fraction | None = None

    def live(self) -> None:
        """From download to arrival, or as far as it comes."""
        try:
            self._transfer("down", self.world.down, self.world.bytes_down)
            self.marks["downloaded"] = self.now
            self._compute()
            self.marks["computed"] = self.now
            self._transfer("up", self.world.up, self.world.bytes_up)
            self.arrives, self.ended = True, self.now
        except _Gone:
            pass

    def _online(self) -> bool:
        tick = math.floor(self.now)
        if tick >= self.until:
            self.ended = self.now if self.world.policy == "drop" else None
            raise _Gone
        return self.world.is_online[tick]

    def _offline(self) -> None:
        """The client is offline now: the end of the work, or of the tick."""
        if self.world.policy == "drop":
            self.ended = self.now
            raise _Gone
        self.now = Fraction(math.floor(self.now) + 1)

    def _transfer(self, way: str, rates: list[int], size: int) -> None:
        left, self.moved[way] = Fraction(size), Fraction(0)
        arrival: Fraction | None = None
        while True:
            if not self._online():
                # What was still in the air has to be sent for again.
                arrival = None
                self._offline()
                continue
            tick = math.floor(self.now)
            rate, end = rates[tick % len(rates)], Fraction(tick + 1)
            sent = min(left, rate * (end - self.now))
            if left and sent == left:
                self.now += left / rate
                arrival = self.now + self.world.latency
            elif left:
                self.now = end
            elif arrival is None:
                arrival = self.now + self.world.latency
            left -= sent
            self.moved[way] += sent
            if not left:
                assert arrival is not None
                if arrival <= end:
                    self.now = arrival
                    return
                self.now = end

    def _compute(self) -> None:
        world, work = self.world, Fraction(0)
        whole = Fraction(world.step * world.steps)
        while work < whole:
            leaves = world.policy == "send_partial"
            if leaves and (math.floor(self.now) >= self.until or not self._online()):
                break
            if world.policy in ("drop", "pause") and not self._online():
                self._offline()
                continue
            time = min(Fraction(math.floor(self.now) + 1) - self.now, whole - work)
            self.now, work = self.now + time, work + time
            self.steps_done = math.floor(work / world.step)
        if not self.steps_done:
            self.ended = self.now
            raise _Gone


def planned(world: World) -> Planner:
    edges = np.flatnonzero(np.diff([0, *world.is_online, 0]))
    context = DeviceContext(
        clients=1,
        seed=0,
        folder=Path(),
        bundle=None,
        device_rows=np.empty(0, dtype=np.int64),
        batch_samples=np.ones(1, dtype=np.int64),
        flops_per_sample=None,
        eligible=np.ones(1, dtype=np.bool_),
    )
    params = ValuesParams(step=world.step / 1000)
    lengths = [len(world.down), len(world.up)]
    series = RateSeries(
        series=np.repeat([0, 1], lengths),
        start_ns=np.concatenate([np.arange(length) for length in lengths]) * MS,
        duration_ns=np.full(sum(lengths), MS),
        rate_bps=np.array(world.down + world.up) * 8000.0,
        on_end="wrap",
        names=["down", "up"],
    )
    down, up = (Ride(np.array([row]), np.zeros(1, np.int64), np.ones(1)) for row in (0, 1))
    population = Population(
        clients=1,
        availability=online(list(zip(edges[::2] / 1000, edges[1::2] / 1000, strict=True))),
        on_disconnect=world.policy,  # type: ignore[arg-type]
        compute=ComputeTimes(Values(params, context)),
        network=TracedNetwork(series, down=down, up=up, latency_s=world.latency / 1000),
        power=Power(np.ones((1, 3)), np.zeros(1, dtype=np.uint8)),
        batteries=None,
        eligible=context.eligible,
    )
    workload = Workload(
        population,
        Failures(),
        world.bytes_down,
        world.bytes_up,
        send_partial_work=False,
        seed=0,
    )
    return Planner(workload)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    rates = st.lists(st.sampled_from([0, 0, 1, 2, 5, 10]), min_size=1, max_size=9).filter(any)
    return World(
        policy=draw(st.sampled_from(["drop", "pause", "finish", "send_partial"])),
        runs=tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=12))),
        stays=draw(st.booleans()),
        down=draw(rates),
        up=draw(rates),
        latency=draw(st.sampled_from([0, 0, 3, 20])),
        step=draw(st.sampled_from([1, 4, 15])),
        steps=draw(st.integers(1, 8)),
        bytes_down=10 * draw(st.integers(1, 12)),
        bytes_up=10 * draw(st.integers(1, 12)),
    )


@settings(max_examples=150)
@given(world=worlds())
def test_a_plan_is_what_a_client_lives_through(world: World) -> None:
    planner = planned(world)
    plan = planner.live(handed_out(0, 0, world.steps), None)
    walk = Walk(world)
    walk.live()
    assert (plan.ending is Ending.ARRIVED) == walk.arrives
    if walk.ended is None:
        assert plan.end_ns == NEVER
        # A plan without an end is looked at when the run ends.
        plan = planner.live(handed_out(0, 0, world.steps), None, stop_ns=10 * END_MS * MS)
    else:
        assert plan.end_ns == pytest.approx(float(walk.ended * MS), abs=5)
    for mark, planned_ns in (("downloaded", plan.downloaded_ns), ("computed", plan.computed_ns)):
        if mark in walk.marks:
            assert planned_ns == pytest.approx(float(walk.marks[mark] * MS), abs=5)
        else:
            assert planned_ns == -1
    assert plan.steps_done == walk.steps_done
    assert plan.bytes_down == pytest.approx(float(walk.moved.get("down", 0)), abs=1e-3)
    assert plan.bytes_up == pytest.approx(float(walk.moved.get("up", 0)), abs=1e-3)


@settings(max_examples=80)
@given(world=worlds(), cut=st.integers(0, END_MS))
def test_what_is_done_by_a_cut_is_what_was_done_by_then(world: World, cut: int) -> None:
    """A plan that is cut has gone as far as the client had; one that had ended before is not changed."""
    planner = planned(world)
    whole = planner.live(handed_out(0, 0, world.steps), None)
    plan = planner.live(handed_out(0, 0, world.steps), None, stop_ns=cut * MS)
    if whole.end_ns <= cut * MS:
        assert plan == whole
        return
    assert (plan.end_ns, plan.ending) == (cut * MS, Ending.STOPPED)
    assert plan.steps_done <= whole.steps_done
    for name in ("downloaded_ns", "computed_ns"):
        mark = getattr(whole, name)
        assert getattr(plan, name) == (mark if 0 <= mark <= cut * MS else -1)
    walk = Walk(world, until=cut)
    walk.live()
    assert plan.bytes_down == pytest.approx(float(walk.moved.get("down", 0)), abs=1e-3)
    assert plan.bytes_up == pytest.approx(float(walk.moved.get("up", 0)), abs=1e-3)


def _one_round(deadline: float, **world: object) -> tuple[str, int, float, float]:
    """Outcome, steps, end of the steps and end of a dispatch: 1 s down, up to 10 steps of 1 s, 1 s up."""
    book = simulate(
        **{  # type: ignore[arg-type]
            "step_s": [1],
            "selection": {"name": "scripted", "rounds": [[0]]},
            "schedule": {"name": "sync", "deadline": deadline},
            "partial_work": "send",
            "until_s": 30,
            **world,
        }
    )
    row = book.row(0)
    return book.outcomes()[0], row["steps_done"], row["computed"], row["ended"]


PACE = [
    # The deadline allows 5 steps of 1 s.
    (7.0, {}, ("aggregated", 5, 6.0, 7.0), ("aggregated", 5, 6.0, 7.0)),
    # It will be offline from 2.5 s on, and does not know it.
    (4.0, {"online": [(0.0, 2.5)]}, ("dropped", 1, math.nan, 2.5), ("dropped", 1, math.nan, 2.5)),
    # It has time for half a step: it begins, and is late; with foresight it declines.
    (2.5, {}, ("late", 1, 2.0, 3.0), ("dropped", 0, math.nan, 1.0)),
    # The model is there at 1 s and the upload takes 1 s: too late in any case.
    (1.5, {}, ("dropped", 0, math.nan, 1.0), ("dropped", 0, math.nan, 1.0)),
    # Half as fast from 4 s on: the fourth step ends at 6 s, at a pace of 1.25 s the next would end after 7 s.
    (8.0, {"slow": 4}, ("aggregated", 4, 6.0, 7.0), ("aggregated", 4, 6.0, 7.0)),
    # Half as fast from 5 s on: at 5 s the fifth step is expected at 6 s, ends at 7 s, and the update comes at 8 s.
    (7.0, {"slow": 5}, ("late", 5, 7.0, 8.0), ("aggregated", 4, 5.0, 6.0)),
    # Offline from 2.5 to 6 s: the second step is expected at 3 s and ends at 6.5 s; with foresight, half the upload is
    # done by 2.5 s.
    (
        6.0,
        {"online": [(0.0, 2.5), (6.0, 1e5)], "on_disconnect": "pause"},
        ("late", 2, 6.5, 7.5),
        ("late", 1, 2.0, 6.5),
    ),
]


@pytest.mark.parametrize(("deadline", "changes", "honest", "foresight"), PACE)
@pytest.mark.parametrize("shared", [False, True])
def test_a_client_stops_by_what_it_can_observe(
    deadline: float, changes: dict, honest: tuple, foresight: tuple, shared: bool
) -> None:
    world: dict[str, object] = {"shared": shared}
    if "online" in changes:
        world["availability"] = online(changes["online"])
    if "slow" in changes:
        world["compute"] = {"perturbations": [{"at": changes["slow"], "factor": 2}]}
    if "on_disconnect" in changes:
        world["on_disconnect"] = changes["on_disconnect"]
    for knows, expected in ((False, honest), (True, foresight)):
        assert _one_round(deadline, foresight=knows, **world) == pytest.approx(
            expected, nan_ok=True
        )
