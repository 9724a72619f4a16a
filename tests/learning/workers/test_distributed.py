"""Ranks: the bits of threads, for three of them, some of which have no group; other tests have two, and whole runs."""

from datetime import timedelta
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.learning.workers import distributed
from fedsim.learning.workers.distributed import Ranks
from fedsim.processes.launch import Launch
from tests.learning.problems import make_learner, supervised_task
from tests.learning.timelines import assert_same
from tests.learning.workers.ranks import (
    RANK_CASES,
    checkpoints,
    continued,
    executed,
    free_port,
    results_of,
)


def alone() -> Ranks:
    return Ranks(Launch())


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three ranks has after all cases."""
    return results_of(3, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", RANK_CASES)
def test_ranks_give_the_bits_of_a_thread(name: str, ranks: list[dict[str, Any]]) -> None:
    expected = executed(name, None)
    for results in ranks:
        assert_same(results[name], expected)


def test_a_checkpoint_is_continued_by_another_number_of_ranks(ranks: list[dict[str, Any]]) -> None:
    expected = executed("all memories", None)
    for results in ranks:
        assert_same(results["continued"], expected)
    taken = ranks[0]["checkpoints"]
    assert len(taken) == len(checkpoints(alone()))
    assert_same(continued(taken[1], alone()), expected)


def test_a_rank_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = alone()
    learner = make_learner(supervised_task("mlp"), ranks=ranks)
    other = {**learner.station.describe(), "torch": "1.0"}
    monkeypatch.setattr(ranks, "values", lambda value: [value, other])
    with pytest.raises(UserError, match=r"torch is 1\.0 there"):
        learner.start()
    monkeypatch.setattr(ranks, "values", lambda value: [value, None])  # It does not train.
    with pytest.raises(UserError, match=r"device is None there(.|\n)*the same command"):
        learner.start()
    learner.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [("MASTER_PORT", "99999"), ("MASTER_PORT", "x"), ("SLURM_JOB_ID", "x")],
)
def test_a_variable_that_cannot_be_used_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="do not find each other"):
        Ranks(Launch(0, 2, 0))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_says_that_it_waits(
    rank: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", port)
    monkeypatch.setattr(distributed, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(distributed, "_TIMEOUT", timedelta(seconds=2))
    with pytest.raises(UserError, match="the 3 processes of the run do not find each other"):
        Ranks(Launch(rank, 3, rank))
    (warning,) = [each for each in caplog.messages if "waits" in each]
    assert f"rank {rank} of 3 waits for the others at localhost:{port}" in warning
    assert "for up to 2 s" in warning
