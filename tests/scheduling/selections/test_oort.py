"""Selection by training loss and speed."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.scheduling.drawing import Port, draws, frequency
from tests.scheduling.worlds import play


def test_oort_draws_those_who_teach_most_and_are_fast() -> None:
    """Clients 0 to 4 have high losses, the others none to speak of; client 0 is ten times slower than all."""
    centers = [[10.0]] * 5 + [[0.01]] * 15
    world = play(
        [10.0] + [1.0] * 19,
        task={"centers": centers, "curvatures": 1.0},
        lr=1e-4,
        steps=1,
        method={"name": "fedavg"},
        selection={
            "name": "oort",
            "cohort": 4,
            "exploration": 0.5,
            "exploration_min": 0.25,
        },
        rounds=200,
    )
    counts = frequency(world.book, 20, 200)
    assert counts.sum() == pytest.approx(4)
    assert counts[1:5].min() > 3 * counts[5:].max()
    assert counts[0] < 0.2 * counts[1:5].min()


def test_oort_utility_in_figures() -> None:
    """Samples x loss, clipped and scaled, plus the bonus of age, times the penalty of the slow."""
    from fedsim.scheduling.base import Dispatch
    from fedsim.scheduling.selections.oort import Oort, OortParams

    port = Port(4)
    port.samples = np.array([10, 10, 20, 5])
    port.losses = {0: 1.0, 1: 2.0, 2: 3.0}
    params = OortParams(exploration=0.0, exploration_min=0.0, clip=1.0, preferred_percentile=50)
    oort = Oort(params, port)  # type: ignore[arg-type]
    for client, seconds in ((0, 1), (1, 2), (2, 8)):
        dispatch = Dispatch(client, client, 0, 0, 0, 1, 0)
        dispatch.arrived_ns = seconds * 10**9
        dispatch.open, dispatch.used = False, True
        oort.on_arrival(dispatch)
        oort._last_draw[client] = 1
    oort._learn()
    oort._draws = 5
    bonus = np.sqrt(0.1 * np.log(5))
    expected = [10 / 60 + bonus, 20 / 60 + bonus, (1 + bonus) * (2 / 8) ** 2]
    assert oort.utilities(np.arange(3)) == pytest.approx(expected, rel=1e-12)


def test_oort_explores_faster_clients_first() -> None:
    from fedsim.scheduling.selections.oort import Oort, OortParams

    port = Port(20, [1.0] * 10 + [50.0] * 10)
    first: list[int] = []
    for trial in range(30):
        oort = Oort(OortParams(exploration=1.0), port)  # type: ignore[arg-type]
        oort._generators = 100 * trial
        first += oort.draw(3)
    assert np.mean(np.array(first) < 10) > 0.9


def test_oort_needs_training() -> None:
    with pytest.raises(UserError, match="needs training"):
        draws({"name": "oort", "cohort": 2}, clients=5, rounds=3)
