"""Joining and creating arrival groups (card of FedCompass, section 9.2), times in seconds."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.scheduling.schedules.compass import ArrivalGroup, ArrivalGroups, CompassParams

S = 10**9


def groups(**params: Any) -> ArrivalGroups:
    return ArrivalGroups(CompassParams(**params), min_steps=20, max_steps=100)


def put(
    made: ArrivalGroups, target: float, *, latest: float | None = None, fastest: float = 1.0
) -> ArrivalGroup:
    """An open group with one member of this speed, a client nobody else uses."""
    number = len(made.open) + 1
    group = ArrivalGroup(
        number, round(target * S), round((latest if latest is not None else target) * S)
    )
    group.pending.append(1000 + number)
    made.step_ns[1000 + number] = fastest * S
    made.open[number] = group
    return group


def client(made: ArrivalGroups, speed: float) -> int:
    """A client of this speed."""
    made.step_ns[0] = speed * S
    return 0


def test_join_takes_most_steps_within_bounds() -> None:
    made = groups()
    for target in (50, 190, 205):
        put(made, target)
    joined_group = made.join(client(made, 2), 0)
    assert joined_group is not None
    assert (joined_group[0].number, joined_group[1]) == (2, 95)


def test_join_of_equals_takes_the_newest() -> None:
    made = groups()
    put(made, 100.2)
    put(made, 100.9)
    joined_group = made.join(client(made, 1), 0)
    assert joined_group is not None
    assert (joined_group[0].number, joined_group[1]) == (2, 100)


def test_nobody_joins_a_group_that_was_expected_before_now() -> None:
    made = groups()
    put(made, 50)
    assert made.join(client(made, 1), 60 * S) is None


def test_join_slack() -> None:
    made = groups(join_slack=1.2)
    put(made, 110)
    joined_group = made.join(client(made, 1), 0)
    assert joined_group is not None
    assert joined_group[1] == 110


def test_create_fits_the_next_round_of_the_others() -> None:
    made = groups()
    put(made, 150, fastest=1)
    put(made, 90, fastest=2)
    group, steps = made.create(client(made, 10), 0)
    assert (steps, group.target_ns, group.latest_ns) == (29, 290 * S, 348 * S)


@pytest.mark.parametrize(("skip", "steps"), [(False, 100), (True, 29)])
def test_create_and_a_group_that_cannot_be_met(skip: bool, steps: int) -> None:
    made = groups(create_skip_overflow=skip)
    put(made, 150, fastest=1)
    put(made, 90, fastest=2)
    put(made, 100, fastest=20)
    group, assigned = made.create(client(made, 10), 0)
    assert (assigned, group.target_ns) == (steps, steps * 10 * S)


def test_create_raises_to_the_fewest_steps() -> None:
    made = groups()
    put(made, 150, fastest=1)
    group, steps = made.create(client(made, 20), 0)
    assert (steps, group.target_ns) == (20, 400 * S)


def test_create_without_a_group_to_meet_gives_most_steps() -> None:
    assert groups().params.latest_factor == 1.2
    empty = groups()
    assert empty.create(client(empty, 1), 0)[1] == 100
    past = groups()
    put(past, 50)
    assert past.create(client(past, 1), 50 * S)[1] == 100


def test_create_by_the_latest_arrival() -> None:
    """With T_max for T_a a group whose expected arrival is past still counts."""
    made = groups(create_ref="latest")
    put(made, 50, latest=70, fastest=1)
    assert made.create(client(made, 4), 60 * S)[1] == 27  # (70 + 100 - 60) / 4


def test_fastest_member_may_have_arrived() -> None:
    from fedsim.scheduling.base import Dispatch

    made = groups()
    group = put(made, 120, fastest=2)
    made.step_ns[7] = 0.5 * S
    group.arrived.append(Dispatch(0, 7, 1, 0, 0, 100, 0, 7))
    assert made.create(client(made, 4), 80 * S)[1] == 22  # (120 + 50 - 80) / 4 = 22.5


def test_the_speed_estimate() -> None:
    made = groups(beta_s=0.9)
    made.observe(0, 100 * S, 10)
    seen = [made.step_ns[0] / S]
    for _ in range(3):
        made.observe(0, 50 * S, 10)
        seen.append(made.step_ns[0] / S)
    assert seen == pytest.approx([10, 5.5, 5.05, 5.005], rel=1e-12)
    plain = groups()
    plain.observe(0, 100 * S, 10)
    plain.observe(0, 50 * S, 10)
    assert plain.step_ns[0] == 5 * S


def test_steps_that_fit_exactly_are_not_lost_to_rounding() -> None:
    """0.07 s a step: (now + 100 x 0.07 - now) / 0.07 is 99.99999999999999 in floats of seconds."""
    assert (20 * 0.07 + 100 * 0.07 - 20 * 0.07) / 0.07 < 100
    made = groups()
    put(made, 20 * 0.07 + 100 * 0.07)
    joined_group = made.join(client(made, 0.07), round(20 * 0.07 * S))
    assert joined_group is not None
    assert joined_group[1] == 100


@pytest.mark.parametrize("speed_ns", [1e9 / 7, 12345678.9, 1.0, 3e11 + 0.3])
def test_a_client_can_join_the_group_that_an_equal_one_made(speed_ns: float) -> None:
    """The expected arrival is a whole nanosecond; the steps to it are those of its maker all the same."""
    made = groups()
    made.step_ns |= {0: speed_ns, 1: speed_ns}
    group, steps = made.assign(0, 17)
    joined, same = made.assign(1, 17)
    assert joined is group
    assert same == steps == 100
