"""Server states are kept as long as they are needed."""

from __future__ import annotations

import pytest

from tests.learning.problems import Timeline, make_learner, supervised_task


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
