"""FedSUM-CR: its corrections, and when they are those of FedSUM."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.methods.fedsum_cr import FedSumCr
from tests.methods.driver import Played, Player, Round, close, play
from tests.methods.problems import LOG, LOGS, q2, q3


def test_intermediate_values_of_fedsum_cr() -> None:
    """Corrections y_i and new memories of Q2, from the messages of every round."""
    task = q2()
    player = Player("fedsum_cr", task, steps=2)
    h = []
    for clients in LOG:
        player.aggregate([player.dispatch(part) for part in clients])
        h.append(player.played.memory("gradient")[:, 0])
    close(h[0], [0.975, 0])
    close(h[1], [0.975, 8.017875])
    close(h[2], [-0.09709125, 8.017875])
    # The first local gradient of a client is exact at the model received, the second shows the correction:
    # h = (g_0 + g_1) / 2 and g_1 = g_0 - a (eta_l / N) (g_0 + y_i).
    x = player.played.x
    a, b = np.array([1.0, 3.0]), np.array([1.0, -1.0])

    def correction(client: int, version: int, memory: float) -> float:
        first = a[client] * (x[version] - b[client])
        second = 2 * memory - first
        return float((first - second) / (a[client] * 0.05) - first)

    close(correction(1, 1, h[1][1]), 0.4875)
    close(correction(0, 2, h[2][0]), 4.0089375)
    close(correction(0, 3, h[3][0]), 8.017875)
    close(correction(1, 3, h[3][1]), 0.438954375)


def test_the_correction_of_a_newcomer() -> None:
    """Client 3 of section 7.3 at t = 2: y_3 = -1.8377346, where FedSUM's would be -2.6298704."""
    log: list[Round] = [[0, 1], [0], [1, 2]]
    for method, expected in (("fedsum_cr", -1.8377346), ("fedsum", -2.6298704)):
        played = play(method, q3(), log, steps=2)
        first = 4 * (played.x[2] + 1)
        second = 2 * played.memory("gradient")[2, 0] - first
        correction = (first - second) / (4 * 0.1 / 3) - first
        np.testing.assert_allclose(correction, expected, rtol=0, atol=5.1e-8)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2), unique=True, min_size=1), st.integers(1, 3))
def test_a_constant_active_set_makes_cr_and_fedsum_the_same(clients: list[int], steps: int) -> None:
    log = [clients] * 5
    close(play("fedsum_cr", q3(), log, steps=steps).x, play("fedsum", q3(), log, steps=steps).x)


@settings(max_examples=20)
@given(LOGS)
def test_constant_rates_make_both_corrections_the_same(log: list[list[int]]) -> None:
    literal = play("fedsum_cr", q3(), log, steps=2).x
    close(play("fedsum_cr", q3(), log, steps=2, correction="lr_sum").x, literal)


def test_two_dispatches_of_one_version_leave_cr_finite() -> None:
    """An asynchronous server may hand a client the same version twice: there is no direction to recover then."""
    for correction in ("literal", "lr_sum"):
        player = Player("fedsum_cr", q2(), steps=2, correction=correction)
        first, second = player.dispatch(0), player.dispatch(0)
        player.aggregate([first])
        player.aggregate([second])
        assert np.isfinite(player.played.x).all()
        # y_1 = -h_1: from x = 2, h_1 = 0.975, g = 1: w = 2 - 0.05 x 0.025, and its gradient is 0.99875.
        close(player.played.memory("gradient")[0], (1 + 0.99875) / 2)
        close(player.played.memory("gradient").sum(0), player.played.state("merged")[-1])


def played_with(name: str, **params: Any) -> Played:
    return play(name, q2(), LOG, steps=2, **params)


def test_the_first_download_changes_bytes_alone() -> None:
    plain, sent = played_with("fedsum_cr"), played_with("fedsum_cr", bootstrap="first_download")
    assert (plain.x == sent.x).all()
    method = sent.learner.station.method
    assert isinstance(method, FedSumCr)
    assert [vector.elements for vector in method.first_download()] == [1]
    assert not plain.learner.station.method.first_download()
