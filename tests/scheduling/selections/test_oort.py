"""Selection by training loss and speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scheduling.base import Dispatch
from fedsim.scheduling.selections.oort import Oort, OortParams
from tests.composition.worlds import quadratic
from tests.scheduling.drawing import Port, draws, frequency
from tests.scheduling.worlds import play

pytestmark = pytest.mark.usefixtures("without_reports")


def test_oort_draws_those_who_teach_most_and_are_fast() -> None:
    """Clients 0 to 4 have high losses, the others none to speak of; client 0 is ten times slower than all."""
    centers = [[10.0]] * 5 + [[0.01]] * 15
    world = play(
        [10.0] + [1.0] * 19,
        task={"centers": centers, "curvatures": 1.0},
        lr=1e-4,
        steps=1,
        method={"name": "fedavg"},
        selection={"name": "oort", "cohort": 4, "exploration": 0.5, "exploration_min": 0.25},
        rounds=200,
    )
    counts = frequency(world.book, 20, 200)
    assert counts.sum() == pytest.approx(4)
    assert counts[1:5].min() > 3 * counts[5:].max()
    assert counts[0] < 0.2 * counts[1:5].min()


def test_oort_learns_root_mean_squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """f = a/2 (x - b)^2 from 1, a = (1, 2, 4), b = (0, 3, -1), two steps of 0.1; one sample each.

    Client 0: losses 0.5 and 0.405; client 1: 4 and 2.56; client 2: 8 and 2.88.
    """
    seen: list[list[float]] = []
    learn = Oort._learn

    def watched(oort: Oort) -> None:
        learn(oort)
        seen.append(oort._utility.tolist())

    monkeypatch.setattr(Oort, "_learn", watched)
    server = {"selection": {"name": "oort", "cohort": 3}}
    fedsim.run(quadratic([], server=server, stop={"rounds": 2}), tmp_path / "run")
    squares = [(0.25 + 0.405**2) / 2, (16 + 2.56**2) / 2, (64 + 2.88**2) / 2]
    assert seen[1] == pytest.approx(np.sqrt(squares), rel=1e-12)


def test_oort_utility_in_figures() -> None:
    """Samples x root mean squared loss, clipped and scaled, plus the bonus of age, times the penalty of the slow."""
    port = Port(4)
    port.samples = np.array([10, 10, 20, 5])
    port.losses = {0: 1.0, 1: 2.0, 2: 3.0}
    params = OortParams(exploration=0.0, exploration_min=0.0, clip=1.0, preferred_percentile=50)
    oort = Oort(params, port)  # type: ignore[arg-type]
    for client, seconds in ((0, 1), (1, 2), (2, 8)):
        dispatch = Dispatch(client, client, 0, 0, 0, 1, 0, client)
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
