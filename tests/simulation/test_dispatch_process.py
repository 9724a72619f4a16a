"""How many local steps a client does, by what it can observe and by what it knows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.harness import online, simulate


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


@pytest.mark.parametrize("shared", [False, True])
def test_steps_ahead_are_done_during_the_transfers(shared: bool) -> None:
    """Two clients with steps of 1 s and 1.5 s; four steps per dispatch, two of them ahead; transfers of 1 s."""
    book = simulate(step_s=[1.0, 1.5], steps=4, steps_ahead=2, rounds=2, shared=shared)
    rows = {(row["client"], row["sequence"]): row for row in book.rows}
    # Nothing is ahead in the first round: 1 + 4 or 6 + 1 s.
    assert [rows[client, 0]["computed"] for client in (0, 1)] == [5, 7]
    assert [rows[client, 0]["compute"] for client in (0, 1)] == [4, 6]
    # The next model is there at 9. Client 0 has done its two steps by then and waited; client 1 does them from 7 to 10.
    assert [rows[client, 1]["downloaded"] for client in (0, 1)] == [9, 9]
    assert [rows[client, 1]["computed"] for client in (0, 1)] == [11, 13]
    assert [rows[client, 1]["compute"] for client in (0, 1)] == [4, 6]
    assert [aggregate.time_s for aggregate in book.aggregates] == [8, 14]


def test_a_client_that_was_offline_has_done_no_steps_ahead() -> None:
    # Away from 5.5 to 7.5, in the upload, which it repeats; on the way to the next download it stays.
    index = online([(0.0, 5.5), (7.5, 100.0)], [(0.0, 100.0)])
    options = {"steps": 4, "steps_ahead": 2, "rounds": 2, "on_disconnect": "pause"}
    book = simulate(step_s=[1.0, 1.5], availability=index, **options)  # type: ignore[arg-type]
    rows = {(row["client"], row["sequence"]): row for row in book.rows}
    assert rows[0, 0]["arrived"] == 8
    assert rows[0, 1]["computed"] == rows[0, 1]["downloaded"] + 4 == 13
    assert rows[1, 1]["computed"] == 13


@settings(max_examples=15)
@given(
    step=st.integers(1, 9),
    steps=st.integers(1, 6),
    ahead=st.integers(1, 6),
    transfer=st.integers(0, 9),
)
def test_one_client_ahead_by_the_formula(step: int, steps: int, ahead: int, transfer: int) -> None:
    book = simulate(
        step_s=[float(step)],
        steps=steps,
        steps_ahead=ahead,
        rounds=4,
        bytes_down=1e6 * transfer,
        bytes_up=1e6 * transfer,
    )
    ahead = min(ahead, steps)
    # A round lasts for its remaining steps and what the transfers leave of those ahead, from one upload to the next.
    period = (steps - ahead) * step + max(ahead * step, 2 * transfer)
    times = [aggregate.time_s for aggregate in book.aggregates]
    assert np.diff(times).tolist() == [period] * 3
