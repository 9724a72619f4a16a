"""FedCompass: its worked traces (card of the method, section 9.3): every event, and the model after it.

Clients are counted from 1 as in the paper. Step times are seconds, there is no network, and linear clients change the
model by -lr x steps x slope. Updates that arrive at one instant are handled in order of dispatch, each to its end: in
another order the groups after a tie, and with them the traces, differ. Where several versions are made at one instant,
the model is read after the last.
"""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.methods.fakes import Written, make
from tests.methods.personal_worlds import exact
from tests.methods.test_asynchronous import PLAIN, quadratics
from tests.scheduling.worlds import World, play, slower

FIGURE = [6, 12, 15, 24, 30]
EXACT = {"name": "fedcompass", "alpha": 1.0, "staleness": {"name": "constant"}}


def compass(**options: Any) -> dict[str, Any]:
    return {"name": "compass", "min_steps": 20, "max_steps": 100, **options}


def rows(text: str) -> list[tuple[float, ...]]:
    """Rows of numbers, with commas between them."""
    return [tuple(map(float, row.split())) for row in text.split(",")]


def table(text: str) -> dict[float, tuple[float, ...]]:
    """Such rows by their first number."""
    return {row[0]: row[1:] for row in rows(text)}


FIRSTS = [(120, 1, 1, 100), (240, 2, 1, 40), (300, 3, 1, 28), (480, 4, 2, 35), (600, 5, 2, 24)]


def figure(until: float, *changes: dict[str, Any], **options: Any) -> World:
    """The five clients of Fig. 1, 20, 21 and 22."""
    return play(
        FIGURE, schedule=compass(**options), until_s=until, compute={"perturbations": list(changes)}
    )


def targets(world: World) -> dict[int, tuple[float, float, float]]:
    """Of every group: when it was made, when it is expected, how long it waits."""
    return {
        item.group: (item.time, item.target, item.latest)
        for item in world.assignments
        if item.created
    }


def weighted(updates: list[tuple[int, int]], p: float) -> float:
    """Change of the model by updates (steps, staleness), with the paper's weights."""
    return -sum(0.9 * (staleness + 1) ** -0.5 * p * steps for steps, staleness in updates)


def test_o1_figure_1() -> None:
    world = figure(2521)
    assert world.assigned(until=600) == FIRSTS
    assert world.assigned(601, 720) == [(720, 1, 2, 100), (720, 2, 2, 50), (720, 3, 2, 40)]
    again = [(1, 100), (2, 50), (3, 40), (4, 25), (5, 20)]
    assert world.assigned(721, 1320) == [(1320, client, 3, steps) for client, steps in again]
    assert world.assigned(1321, 1920) == [(1920, client, 4, steps) for client, steps in again]
    assert world.assigned(1921) == [(2520, client, 5, steps) for client, steps in again]
    assert targets(world) == table(
        "1 120 720 840, 2 480 1320 1488, 3 1320 1920 2040, 4 1920 2520 2640, 5 2520 3120 3240"
    )
    assert world.times == [120, 240, 300, 480, 600, 720, 1320, 1920, 2520]
    assert [sorted(members) for members in world.members] == [
        [1],
        [2],
        [3],
        [4],
        [5],
        [1, 2, 3],
        *[[1, 2, 3, 4, 5]] * 3,
    ]
    assert world.staleness[:7] == [[0], [1], [2], [3], [4], [4, 3, 2], [2, 1, 0, 0, 0]]
    assert world.w[1:9] == pytest.approx(
        exact(
            "-3.600000 -6.145584 -8.224045 -10.024045 -11.634014 -26.193704 -67.085712 -109.385712"
        ),
        abs=5.1e-7,
    )
    steps = [
        *[[(20, staleness)] for staleness in range(5)],
        [(100, 4), (40, 3), (28, 2)],
        [(35, 2), (24, 1), (100, 0), (50, 0), (40, 0)],
        [(100, 0), (50, 0), (40, 0), (25, 0), (20, 0)],
    ]
    for version, updates in enumerate(steps):
        change = world.w[version + 1] - world.w[version]
        assert change == pytest.approx(weighted(updates, 0.2), rel=1e-10)


def test_o4_figure_22_a_client_slows_down_beyond_it() -> None:
    """The third client arrives at 16:12 (the paper's 15:12 is a slip of arithmetic)."""
    world = figure(2491, slower(3, 1.6, 300))
    assert world.times == [120, 240, 300, 480, 600, 840, 1320, 1908, 2490]
    assert sorted(world.members[5]) == [1, 2]
    assert world.assigned(601, 840) == [(840, 1, 2, 80), (840, 2, 2, 40)]
    late = next(row for row in world.book.rows if row["client"] == 2 and row["sequence"] == 1)
    assert (late["arrived"], late["staleness"], late["aggregated_version"]) == (972, 3, 7)
    assert late["group"] == 1
    assert world.book.aggregates[6].attributes["group"] == 2
    assert world.assigned(841, 972) == [(972, 3, 3, 39)]
    assert targets(world)[3] == (972, 1908, pytest.approx(2095.2, abs=1e-9))
    assert world.assigned(1320, 1320) == rows("1320 1 3 98, 1320 2 3 49, 1320 4 3 24, 1320 5 4 39")
    assert targets(world)[4][1] == 2490
    assert sorted(world.assigned(1908, 1908)) == rows(
        "1908 1 4 97, 1908 2 4 48, 1908 3 4 24, 1908 4 4 24"
    )
    assert sorted(world.members[-1]) == [1, 2, 3, 4, 5]
    assert sorted((item[1], item[3]) for item in world.assigned(2490)) == rows(
        "1 100, 2 50, 3 25, 4 25, 5 20"
    )
    group2 = [(35, 2), (24, 1), (80, 0), (40, 0), (28, 3)]
    assert world.w[7] - world.w[6] == pytest.approx(weighted(group2, 0.2), rel=1e-10)


O5 = {"step_s": [1, 2, 4], "slopes": [3.0, 6.0, 9.0], "lr": 0.01}


def test_o5_linear_clients() -> None:
    world = play(**O5, method=EXACT, schedule=compass(), until_s=420)
    assert world.assigned() == rows(
        "20 1 1 100, 40 2 1 40, 80 3 2 35, 120 1 2 100, 120 2 2 50, 220 1 3 100, "
        "220 2 3 50, 220 3 3 25, 320 1 4 100, 320 2 4 50, 320 3 4 25, 420 1 5 100, "
        "420 2 5 50, 420 3 5 25"
    )
    assert targets(world) == table(
        "1 20 120 140, 2 80 220 248, 3 220 320 340, 4 320 420 440, 5 420 520 540"
    )
    assert world.times == [20, 40, 80, 120, 220, 320, 420]
    assert world.staleness[3:5] == [[2, 1], [1, 0, 0]]
    assert world.w[1:7] == pytest.approx([-0.2, -0.6, -1.2, -3.0, -6.05, -8.8], rel=1e-10)


@pytest.mark.parametrize(
    ("variant", "expected"),
    [({"momentum": 0.9}, [-3.0, -7.67, -14.623]), ({"normalized": True}, [-3.3, -7.0, -10.5])],
)
def test_o5_variants(variant: dict[str, Any], expected: list[float]) -> None:
    world = play(**O5, method=EXACT | variant, schedule=compass(), until_s=320)
    assert world.w[1:4] == pytest.approx([-0.2, -0.6, -1.2], rel=1e-10)
    assert world.w[4:] == pytest.approx(expected, rel=1e-10)


O6: dict[str, Any] = {
    "step_s": [1, 2, 4],
    "schedule": compass(),
    "until_s": 217,
    "compute": {"perturbations": [slower(1, 0.5, 20, 70)]},
}


@pytest.mark.parametrize(
    ("staleness_at", "w"), [("arrival", -43.405227), ("aggregation", -39.512532)]
)
def test_o6_an_early_arrival_and_the_staleness_it_is_frozen_at(staleness_at: str, w: float) -> None:
    world = play(**O6, method={"name": "fedcompass", "staleness_at": staleness_at})
    early = next(row for row in world.book.rows if row["client"] == 0 and row["sequence"] == 1)
    assert (early["arrived"], early["staleness"]) == (70, 1)
    assert world.w_at(120) == pytest.approx(w, abs=5.1e-7)
    if staleness_at == "arrival":
        # Singles with s = 0, 1, 2, then client 1 (s = 1) and client 2 (s = 1).
        exact = weighted([(20, 0), (20, 1), (20, 2), (100, 1), (40, 1)], 1 / 3)
        assert world.w_at(120) == pytest.approx(exact, rel=1e-10)


def test_o6_events() -> None:
    world = play(**O6)
    assert world.times == [20, 40, 80, 120, pytest.approx(185.6, abs=1e-9)]
    # The fastest of the first group is client 1 with 0.5 s a step, though its update has arrived.
    assert targets(world)[2] == (80, 168, pytest.approx(185.6, abs=1e-9))
    assert world.assigned(80, 120) == [(80, 3, 2, 22), (120, 1, 2, 96), (120, 2, 2, 24)]
    assert sorted(world.members[-1]) == [2, 3]
    assert all(
        row["arrived"] == 168
        for row in world.book.rows
        if row["aggregated_version"] == 5 and row["client"] in (1, 2)
    )
    late = next(row for row in world.book.rows if row["client"] == 0 and row["sequence"] == 2)
    assert late["arrived"] == 216
    # It waits in the general buffer for the next group.
    assert world.book.outcomes()[late["dispatch_id"]] == "unfinished"


def test_o7_general_buffer() -> None:
    world = play(
        [1, 3],
        method=EXACT,
        lr=0.01,
        schedule=compass(),
        until_s=440,
        compute={"perturbations": [slower(1, 2, 20, 220)]},
    )
    assert world.assigned() == rows(
        "20 1 1 100, 60 2 1 20, 140 2 2 100, 220 1 3 100, 320 1 4 100, 420 1 2 20, "
        "440 1 5 100, 440 2 5 33"
    )
    assert targets(world) == table(
        "1 20 120 140, 2 140 440 500, 3 220 420 460, 4 320 420 440, 5 440 540 560"
    )
    assert world.times == [20, 60, 140, 320, 420, 440]
    assert world.members == [[1], [2], [2], [1, 1], [1], [2, 1]]
    assert world.w[1:] == pytest.approx([-0.1, -0.2, -0.3, -1.3, -1.8, -2.4], rel=1e-10)
    assert world.w_at(220) == pytest.approx(-0.3, rel=1e-10)
    by_client = {item.client: item.staleness for item in world.book.aggregates[-1].contributions}
    assert by_client == {0: 0, 1: 2}


def test_o9_with_ties_in_order_of_dispatching() -> None:
    """Client 2 was dispatched first, so its first update is handled before client 1's second: the cycle starts
    earlier."""
    world = play([1, 6, 10], method=EXACT, schedule=compass(), until_s=1510)
    assert world.members[1:3] == [[2], [1]]
    assert world.times[1:3] == [120, 120]
    _is_a_cycle_from(world, [720, 1510])


def _is_a_cycle_from(world: World, starts: list[float]) -> None:
    members = dict(zip(world.times, world.members, strict=True))
    for start in starts:
        assert sorted(members[start]) == [1, 2, 3]
        made = [item for item in world.assignments if item.time == start]
        assert [(item.client, item.steps, item.created) for item in made] == [
            (1, 100, True),
            (2, 33, True),
            (3, 79, True),
        ]
        assert [item.target - start for item in made] == [100, 198, 790]


def test_o10_equal_clients_are_fedavg() -> None:
    world = play([1, 1, 1, 1], schedule=compass(), until_s=320)
    assert world.times == [20, 20, 20, 20, 120, 220, 320]
    assert world.staleness[:5] == [[0], [1], [2], [3], [3, 2, 1, 0]]
    assert world.assigned(20, 20) == [(20, client, 1, 100) for client in (1, 2, 3, 4)]
    assert [len(members) for members in world.members[4:]] == [4, 4, 4]
    for before, after in pairwise(world.w[5:]):
        assert after - before == pytest.approx(-0.9 * 100, rel=1e-10)
    plain = play([1, 1, 1, 1], method=EXACT, schedule=compass(), until_s=320)
    fedavg = play([1, 1, 1, 1], method={"name": "fedavg"}, schedule={"name": "sync"}, until_s=200)
    assert plain.w[-1] - plain.w[5] == pytest.approx(fedavg.w[2], rel=1e-10)


def test_o12_an_arrival_at_the_latest_time_is_in_time() -> None:
    world = play([1, 2], schedule=compass(latest_factor=1.0), until_s=121)
    assert world.times == [20, 40, 120]
    assert sorted(world.members[-1]) == [1, 2]
    assert world.assigned(120) == [(120, 1, 2, 100), (120, 2, 2, 50)]


def test_o13_equal_bounds_are_fedasync() -> None:
    options = {"min_steps": 100, "max_steps": 100}
    world = play([1.01, 1.97], schedule=compass(**options), until_s=600)
    assert world.times[:5] == [101, 197, 202, 303, 394]
    assert all(len(members) == 1 for members in world.members)
    fedasync = play(
        [1.01, 1.97],
        method={"name": "fedasync", "form": "delta", "alpha": 0.9},
        schedule={"name": "async"},
        until_s=600,
    )
    assert world.times == fedasync.times
    assert world.w == fedasync.w


def test_section_3_partial_group() -> None:
    """Clients 1 and 3 of three alone: plain 195, normalized with the mean steps over these two."""
    for normalized, step in ((False, 195.0), (True, 259.2857)):
        method = make(EXACT | {"normalized": normalized}, samples=[5, 3, 2])
        updates = Written(
            {"delta": [[-300.0], [-225.0]]},
            samples=[5, 2],
            steps=[100, 25],
            attributes={"group": 1.0},
        )
        state = method.aggregate(method.initial_state(torch.zeros(1, dtype=torch.float64)), updates)
        assert -state["model"].item() == pytest.approx(step, abs=5.1e-5)


def test_timing_does_not_depend_on_the_aggregation() -> None:
    """I11: FedCompass, +M, +N and any staleness weight live through the same events."""
    variants: list[dict[str, Any]] = [
        {},
        {"momentum": 0.9},
        {"normalized": True},
        {"alpha": 0.3, "staleness": {"name": "hinge"}},
        {"staleness_at": "aggregation"},
    ]
    worlds = [
        quadratics(
            [1.0, 2.3, 5.9],
            {"name": "fedcompass", **variant},
            schedule={"name": "compass", "min_steps": 2, "max_steps": 10},
            until_s=300,
            compute={"jitter": {"name": "normal", "cv": 0.2}},
        )
        for variant in variants
    ]
    for world in worlds[1:]:
        assert world.assignments == worlds[0].assignments
        assert world.book.aggregates == worlds[0].book.aggregates
        assert world.w != worlds[0].w
    assert any(
        item.group not in (0, aggregate.attributes["group"])
        for aggregate in worlds[0].book.aggregates
        for item in aggregate.contributions
    )


def test_first_updates_bypass_momentum_and_normalization() -> None:
    state = {
        "model": torch.tensor([1.0], dtype=torch.float64),
        "momentum": torch.tensor([5.0], dtype=torch.float64),
    }
    method = make({"name": "fedcompass", **PLAIN, "momentum": 0.9, "normalized": True}, [1, 3])
    updates = Written({"delta": [[8.0]]}, samples=[3], steps=[7], attributes={"group": 0.0})
    after = method.aggregate(state, updates)
    assert after["model"].item() == 7.0
    assert after["momentum"] is state["momentum"]


SPEEDS = st.lists(st.integers(100, 10_000).map(lambda ms: ms / 1000), min_size=1, max_size=6)


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(step_s=SPEEDS, seed=st.integers(0, 5), factor=st.sampled_from([1.0, 1.2]))
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
