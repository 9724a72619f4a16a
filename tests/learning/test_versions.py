"""Server states are kept as long as they are needed, and follow one another."""

from __future__ import annotations

import pytest

from fedsim.errors import InvariantViolation
from fedsim.vocabulary.timeline import Aggregate, Train
from tests.learning.problems import Timeline, make_learner, quadratic_task, supervised_task


def test_old_versions_are_freed() -> None:
    learner = make_learner(supervised_task("mlp"), max_pending=1)
    timeline = Timeline()
    pending = timeline.dispatch(7)
    for client in range(5):
        timeline.aggregate(timeline.dispatch(client))
        timeline.evaluate()
    timeline.play(learner)
    learner.flush()
    versions = learner._side.versions
    assert sorted(versions.kept()) == [0, 5]
    learner.drop(pending.version)
    assert sorted(versions.kept()) == [5]
    with pytest.raises(KeyError):
        versions.whole(5)


def test_a_train_must_hold_its_version() -> None:
    learner = make_learner(quadratic_task())
    with pytest.raises(InvariantViolation, match="was not held"):
        learner.submit(Train(0, 0, 0, 0, 0, 1, 1, 0.0))


def test_versions_must_be_consecutive() -> None:
    learner = make_learner(quadratic_task())
    learner.submit(Aggregate(2, 0.0, 0, ()))
    with pytest.raises(InvariantViolation, match="follows"):
        learner.flush()
