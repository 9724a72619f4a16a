"""Joining and creating arrival groups (card of FedCompass, section 9.2), times in seconds."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedsim.scheduling.base import Dispatch
from fedsim.scheduling.schedules.compass import ArrivalGroup, Compass

S = 10**9


class Open(NamedTuple):
    """An open group with one member of a speed, a client nobody else uses."""

    target: float
    fastest: float = 1.0
    latest: float | None = None


def groups(*opened: Open, speed: float = 1.0, **params: Any) -> Compass:
    """Open groups from number 1, and client 0 of this speed."""
    server: Any = SimpleNamespace(default_steps=np.array([100]))
    made = Compass(Compass.Params(**params), server, None)  # type: ignore[arg-type]
    made.step_ns[0] = speed * S
    for number, (target, fastest, latest) in enumerate(opened, 1):
        latest_ns = round((target if latest is None else latest) * S)
        made.open.append(ArrivalGroup(number, round(target * S), latest_ns, [1000 + number]))
        made.step_ns[1000 + number] = fastest * S
    return made


@pytest.mark.parametrize(
    ("opened", "speed", "now", "params", "expected"),
    [
        # Most steps within bounds, 205 s are too many; of equals, the newest.
        ((Open(50), Open(190), Open(205)), 2, 0, {}, (2, 95)),
        ((Open(100.2), Open(100.9)), 1, 0, {}, (2, 100)),
        # Nobody joins a group that was expected before now.
        ((Open(50),), 1, 60, {}, None),
        ((Open(110),), 1, 0, {"join_slack": 1.2}, (1, 110)),
        # (now + 100 x 0.07 - now) / 0.07 is 99.99999999999999 in floats of seconds.
        ((Open(20 * 0.07 + 100 * 0.07),), 0.07, 20 * 0.07, {}, (1, 100)),
    ],
)
def test_join(
    opened: tuple[Open, ...], speed: float, now: float, params: dict[str, Any], expected: Any
) -> None:
    joined = groups(*opened, speed=speed, **params).join(0, round(now * S))
    assert (joined and (joined[0].number, joined[1])) == expected


@pytest.mark.parametrize(
    ("opened", "speed", "now", "params", "steps"),
    [
        # The next round of the others: 90 + 2 x 100 = 290 s.
        ((Open(150), Open(90, 2)), 10, 0, {}, 29),
        # A group that cannot be met counts, unless it is skipped.
        ((Open(150), Open(90, 2), Open(100, 20)), 10, 0, {}, 100),
        ((Open(150), Open(90, 2), Open(100, 20)), 10, 0, {"create_skip_overflow": True}, 29),
        # Raised to the fewest steps.
        ((Open(150),), 20, 0, {}, 20),
        # Without a group to meet: most steps.
        ((), 1, 0, {}, 100),
        ((Open(50),), 1, 50, {}, 100),
        # With T_max for T_a a group whose expected arrival is past still counts: (70 + 100 - 60) / 4.
        ((Open(50, latest=70),), 4, 60, {"create_ref": "latest"}, 27),
    ],
)
def test_create(
    opened: tuple[Open, ...], speed: float, now: float, params: dict[str, Any], steps: int
) -> None:
    group, assigned = groups(*opened, speed=speed, **params).create(0, now * S)
    wait = steps * speed
    assert (assigned, group.target_ns) == (steps, (now + wait) * S)
    assert group.latest_ns == round((now + 1.2 * wait) * S)


def test_fastest_member_may_have_arrived() -> None:
    made = groups(Open(120, 2), speed=4)
    made.step_ns[7] = 0.5 * S
    made.open[0].arrived.append(Dispatch(0, 7, 1, 0, 0, 100, 0, 7))
    assert made.create(0, 80 * S)[1] == 22  # (120 + 50 - 80) / 4 = 22.5


@pytest.mark.parametrize(("beta_s", "seen"), [(0.9, [10, 5.5, 5.05, 5.005]), (1.0, [10, 5, 5, 5])])
def test_the_speed_estimate(beta_s: float, seen: list[float]) -> None:
    made = groups(beta_s=beta_s)
    made.step_ns.clear()
    estimates = []
    for seconds in (100, 50, 50, 50):
        made.observe(0, seconds * S, 10)
        estimates.append(made.step_ns[0] / S)
    assert estimates == pytest.approx(seen, rel=1e-12)


@pytest.mark.parametrize("speed_ns", [1e9 / 7, 12345678.9, 1.0, 3e11 + 0.3])
def test_a_client_can_join_the_group_that_an_equal_one_made(speed_ns: float) -> None:
    """The expected arrival is a whole nanosecond; the steps to it are those of its maker all the same."""
    made = groups()
    made.step_ns |= {0: speed_ns, 1: speed_ns}
    group, steps = made.assign(0, 17)
    joined, same = made.assign(1, 17)
    assert joined is group
    assert same == steps == 100
