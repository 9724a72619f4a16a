"""FedSUM-CR: its corrections, and when they are those of FedSUM."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings

from fedsim.methods.fedsum_cr import FedSumCr
from tests.methods.driver import Played, Player, close, play
from tests.methods.problems import LOG, LOGS, q2, q3


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
