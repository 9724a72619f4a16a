"""What holds of FedCompass in every world (card of the method, section 9.1)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fedsim.scheduling.schedules.compass import ArrivalGroup, Compass
from tests.scheduling.worlds import NO_NETWORK, play
from tests.simulation.harness import Book, online, simulate


class Watcher:
    """Checks a Compass schedule after every event."""

    def __init__(self) -> None:
        self.assigned = 0
        self.groups: dict[int, ArrivalGroup] = {}
        self.created_ns: dict[int, int] = {}
        self.at_work: Counter[int] = Counter()

    def __call__(self, schedule: Any, server: Any) -> None:
        assert isinstance(schedule, Compass)
        self.schedule, self.server = schedule, server
        self._assign = schedule.groups.assign
        schedule.groups.assign = self.assign  # type: ignore[method-assign]
        self._hand_out = schedule.hand_out
        schedule.hand_out = self.hand_out  # type: ignore[method-assign]
        for name in ("received", "lost"):
            setattr(schedule, name, self._followed(getattr(schedule, name)))

    def hand_out(self, client: int, steps: Any = None) -> None:
        self.at_work[client] += 1
        self._hand_out(client, steps)

    def _followed(self, handle: Any) -> Any:
        def wrapped(dispatch: Any) -> None:
            self.at_work[dispatch.client] -= 1
            handle(dispatch)
            self.check()

        return wrapped

    def assign(self, client: int, now_ns: int) -> Any:
        """Of every assignment: I3, I4, I5, I8 and I14."""
        schedule = self.schedule
        rules, before = schedule.groups, dict(schedule.groups.open)
        group, steps = self._assign(client, now_ns)
        step_ns = schedule.groups.step_ns[client]
        assert rules.min_steps <= steps <= rules.max_steps
        predicted = now_ns + steps * step_ns
        if group.number in before:
            assert before[group.number] is group
            assert group.target_ns - step_ns < predicted + 2
            assert predicted <= group.target_ns + 1e-9 * step_ns + 1
        else:
            assert group.number not in self.groups
            assert abs(predicted - group.target_ns) <= 1
            from_latest = rules.params.create_ref == "latest"
            horizon = [g.latest_ns if from_latest else g.target_ns for g in before.values()]
            if all(time_ns <= now_ns for time_ns in horizon):
                assert steps == rules.max_steps
            self.groups[group.number] = group
            self.created_ns[group.number] = now_ns
        created_ns = self.created_ns[group.number]
        waits = group.target_ns - created_ns
        assert group.latest_ns - created_ns == round(rules.params.latest_factor * waits)
        self.assigned += 1
        return group, steps

    def check(self) -> None:
        """I1 and I2: every client is at work (or is to be when it checks in), or idles in one group."""
        schedule = self.schedule
        idle = Counter(
            dispatch.client for group in schedule.groups.open.values() for dispatch in group.arrived
        )
        for client in range(self.server.clients):
            assert self.at_work[client] + idle[client] == 1
            group = schedule._group_of.get(client)
            if group is not None:
                assert self.at_work[client]
                assert group.pending.count(client) == 1
        for group in schedule.groups.open.values():
            assert group.pending
            assert all(schedule._group_of[client] is group for client in group.pending)


def check_book(book: Book) -> None:
    """I6, I9 and I10, from what was written."""
    ended: dict[int, float] = {}
    rows = sorted(book.rows, key=lambda row: int(row["dispatch_id"]))
    for row in rows:
        assert row["dispatched"] >= ended.get(row["client"], 0.0)
        ended[row["client"]] = row["ended"]
    assert [aggregate.version for aggregate in book.aggregates] == list(
        range(1, len(book.aggregates) + 1)
    )
    after = {(row["client"], row["dispatched"]): row["version"] for row in rows}
    used: Counter[int] = Counter()
    for aggregate in book.aggregates:
        group = aggregate.attributes["group"]
        for item in aggregate.contributions:
            used[item.dispatch_id] += 1
            assert item.staleness >= 0
            again = after.get((item.client, aggregate.time_s))
            if item.group == group and again is not None:
                assert again == aggregate.version
        if group == 0:
            assert len(aggregate.contributions) == 1
    assert all(count == 1 for count in used.values())


speeds = st.lists(st.integers(100, 10_000).map(lambda ms: ms / 1000), min_size=1, max_size=6)
options = st.fixed_dictionaries(
    {
        "latest_factor": st.sampled_from([1.0, 1.2, 2.0]),
        "min_steps": st.integers(1, 20),
        "max_steps": st.sampled_from([20, 25, 100]),
        "beta_s": st.sampled_from([1.0, 0.9]),
        "create_ref": st.sampled_from(["target", "latest"]),
        "create_skip_overflow": st.booleans(),
        "empty_timer": st.sampled_from(["flush", "keep"]),
    }
)


@st.composite
def sessions(draw: st.DrawFn) -> list[tuple[float, float]]:
    lengths = draw(st.lists(st.integers(1, 400), min_size=2, max_size=12))
    ends = [sum(lengths[: k + 1]) for k in range(len(lengths))]
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    return [(float(a), float(b)) for a, b in [(0, ends[0] / 2), *pairs, (ends[-1] + 50, 1e6)]]


@settings(max_examples=30, phases=[Phase.explicit, Phase.generate])
@given(
    step_s=speeds,
    rules=options,
    cv=st.sampled_from([0.0, 0.05, 0.4]),
    seed=st.integers(0, 5),
    away=st.lists(sessions(), min_size=6, max_size=6) | st.none(),
)
def test_in_every_world(
    step_s: list[float], rules: dict[str, Any], cv: float, seed: int, away: Any
) -> None:
    watcher = Watcher()
    book = simulate(
        step_s=step_s,
        schedule={"name": "compass", **rules},
        compute={"jitter": {"name": "normal", "cv": cv}},
        seed=seed,
        availability=None if away is None else online(*away[: len(step_s)]),
        until_s=700,
        observe=watcher,
        **NO_NETWORK,
    )
    check_book(book)
    late = [
        item
        for aggregate in book.aggregates
        for item in aggregate.contributions
        if item.group != aggregate.attributes["group"]
    ]
    if away is None:
        assert watcher.assigned
        if cv == 0.0:
            # Nobody's speed changes, so everybody comes by the time expected.
            assert not late


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(step_s=speeds, seed=st.integers(0, 5), factor=st.sampled_from([1.0, 1.2]))
def test_every_update_is_applied_once(step_s: list[float], seed: int, factor: float) -> None:
    """I7: with alpha = 1 and without staleness the model has moved by all updates but those that still wait."""
    world = play(
        step_s,
        method={"name": "fedcompass", "alpha": 1.0, "staleness": {"name": "constant"}},
        schedule={"name": "compass", "min_steps": 5, "max_steps": 25, "latest_factor": factor},
        compute={"jitter": {"name": "normal", "cv": 0.2}},
        seed=seed,
        until_s=150,
    )
    waiting = received = 0.0
    outcomes = world.book.outcomes()
    for row in world.book.rows:
        if row["arrived"] == row["arrived"]:
            change = row["steps_done"] / len(step_s)
            received += change
            waiting += change * (outcomes[row["dispatch_id"]] == "unfinished")
    assert -world.w[-1] + waiting == pytest.approx(received, rel=1e-10)


def test_nobody_is_late_for_a_group_that_waits_for_ever() -> None:
    """I12, with speeds that jump by 40%; the same world has late updates where groups wait 1.2 times as long."""
    late = {}
    for factor in (1.2, 1e6):
        book = simulate(
            step_s=[1.0, 1.7, 3.1, 4.4],
            schedule={
                "name": "compass",
                "min_steps": 20,
                "max_steps": 100,
                "latest_factor": factor,
            },
            compute={"jitter": {"name": "normal", "cv": 0.4}},
            until_s=20_000,
            **NO_NETWORK,
        )
        late[factor] = sum(
            item.group != aggregate.attributes["group"]
            for aggregate in book.aggregates
            for item in aggregate.contributions
        )
    assert late[1.2] > 20
    assert late[1e6] == 0


@pytest.mark.parametrize(
    ("factor", "fewest", "most"), [(1.0, 0.45, 0.51), (1.2, 0.0005, 0.01), (2.0, 0.0, 0.0)]
)
def test_late_updates_by_the_latest_time(factor: float, fewest: float, most: float) -> None:
    """Section 9.4 of the card: with 5% jitter 48% of all updates are late for lambda 1, 0.4% for 1.2, none for 2."""
    late = updates = 0
    for seed in range(4):
        step_s = np.random.default_rng(seed).normal(1.0, 0.3, 5).clip(0.05)
        book = simulate(
            step_s=step_s.tolist(),
            schedule={
                "name": "compass",
                "min_steps": 40,
                "max_steps": 200,
                "latest_factor": factor,
            },
            compute={"jitter": {"name": "normal", "cv": 0.05}},
            seed=seed,
            until_s=20_000,
            **NO_NETWORK,
        )
        for aggregate in book.aggregates:
            updates += len(aggregate.contributions)
            late += sum(
                item.group != aggregate.attributes["group"] for item in aggregate.contributions
            )
    assert fewest <= late / updates <= most


def test_fedavg_learns_the_same_whatever_the_speeds() -> None:
    """I13: step times decide when, never what."""
    for method in ("fedavg", "fedavgm"):
        slow, fast = (
            play(step_s, slopes=[1.0, 2.0, 4.0], method={"name": method}, rounds=5)
            for step_s in ([1.0, 1.0, 1.0], [0.3, 5.0, 2.0])
        )
        assert slow.w == pytest.approx(fast.w, rel=1e-12)
        assert slow.times != fast.times
