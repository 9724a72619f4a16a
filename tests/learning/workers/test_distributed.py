"""Ranks: the same bits for every number of them, with sums instead of updates between them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from fedsim.errors import InvariantViolation, UserError
from fedsim.learning.workers import distributed
from fedsim.learning.workers.distributed import SHARDS, Ranks, place
from fedsim.processes.launch import Launch
from tests.learning.problems import Timeline, make_learner, supervised_task
from tests.learning.timelines import assert_same
from tests.learning.workers.ranks import (
    RANK_CASES,
    checkpoints,
    continued,
    executed,
    free_port,
    results_of,
)

COUNTS = (2, 3, 4)


def alone() -> Ranks:
    return Ranks(Launch())


@pytest.fixture(scope="module", params=COUNTS)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each of several ranks has after all cases."""
    return results_of(request.param, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def one() -> Mapping[str, Any]:
    """The results of one rank."""
    return {name: executed(name, alone()) for name in RANK_CASES}


def test_every_number_of_ranks_gives_the_same_bits(ranks: Any, one: Mapping[str, Any]) -> None:
    for name, expected in one.items():
        for results in ranks:
            assert_same(results[name][:2], expected[:2])


def test_sums_are_exchanged_instead_of_updates(ranks: Any) -> None:
    # Two rounds of eight updates; the shards of two or four ranks are whole branches of the tree.
    state, _, sent = ranks[0]["sums"]
    branches = {2: 2, 3: 6, 4: 4}[len(ranks)]
    assert sent == [state["model"].nbytes] * (2 * branches)
    assert len(ranks[0]["median"][2]) == 2 * 8


def test_a_checkpoint_is_continued_by_another_number_of_ranks(
    ranks: Any, one: Mapping[str, Any]
) -> None:
    for results in ranks:
        assert_same(results["continued"][:2], one["all memories"][:2])
    taken = ranks[0]["checkpoints"]
    assert len(taken) == len(checkpoints(alone()))
    assert_same(continued(taken[1], alone())[:2], one["all memories"][:2])


@pytest.mark.parametrize("name", RANK_CASES)
def test_threads_give_the_same_up_to_rounding(name: str, one: Mapping[str, Any]) -> None:
    tolerance = 1e-12 if name == "double" else 1e-6
    (state, rows, _), (expected, expected_rows, _) = one[name], executed(name, None)
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        difference = (state[key] - value).double().norm()
        assert difference <= tolerance * value.double().norm(), key
    assert [version for version, _ in rows] == [version for version, _ in expected_rows]


def test_groups_are_placed_longest_first() -> None:
    shards = place([5, 4, 3, 2, 2])
    left = [cost for cost, shard in zip([5, 4, 3, 2, 2], shards, strict=True) if shard < SHARDS / 2]
    assert sum(left) == 9
    assert sorted(place([1.0] * SHARDS)) == list(range(SHARDS))


def test_ranks_that_train_different_dispatches_are_a_defect() -> None:
    waiting = Timeline()
    wave = [waiting.dispatch(client) for client in range(2)]
    assert alone().losses({0: 0.5, 1: 0.25}, wave) == {0: 0.5, 1: 0.25}
    with pytest.raises(InvariantViolation, match="different dispatches"):
        alone().losses({0: 0.5}, wave)


def test_a_rank_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = alone()
    learner = make_learner(supervised_task("mlp"), ranks=ranks)
    other = {**learner.station.describe(), "torch": "1.0"}
    monkeypatch.setattr(ranks, "values", lambda value: [value, other])
    with pytest.raises(UserError, match=r"torch is 1\.0 there"):
        learner.start()
    learner.stop()


def test_too_many_ranks() -> None:
    with pytest.raises(UserError, match="17 processes were started, but a run uses at most 16"):
        Ranks(Launch(3, 17, 3))


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
