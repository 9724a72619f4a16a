"""Waves of the deferred learner: what is trained together, what never, and in which order."""

import pytest

from tests.learning.problems import Remembering, Timeline, make_learner, supervised_task
from tests.learning.timelines import assert_same, count_groups, execute


def test_waves_take_everything_whose_version_exists() -> None:
    """Dispatches of versions 0 and 1 that end in four aggregations are trained in two waves."""
    timeline = Timeline()
    early = [timeline.dispatch(client) for client in range(6)]
    timeline.aggregate(early[0])
    later = [timeline.dispatch(6), timeline.dispatch(7)]
    timeline.aggregate(early[1], early[2])
    timeline.aggregate(later[0], early[3])
    timeline.aggregate(early[4], early[5], later[1])
    task = supervised_task("mlp", sizes=(50,) * 8)
    learner = make_learner(task)
    assert count_groups(timeline, learner) == [[0, 1, 2, 3, 4, 5], [6, 7]]


def test_lost_and_unused_dispatches_are_never_trained() -> None:
    timeline = Timeline()
    used, lost, waiting = (timeline.dispatch(client) for client in range(3))
    timeline.lose(lost)
    timeline.aggregate(used)
    timeline.calls.append(("submit", waiting))
    task = supervised_task("mlp")
    learner = make_learner(task)
    assert count_groups(timeline, learner) == [[0]]


@pytest.mark.parametrize("later_first", [False, True])
def test_one_dispatch_at_a_time_of_clients_that_remember(later_first: bool) -> None:
    """The second dispatch of a client sees what the first has left, even if it is aggregated before it."""
    timeline = Timeline()
    first, second = timeline.dispatch(0), timeline.dispatch(0)
    if later_first:
        timeline.calls += [("submit", first)]
        timeline.aggregate(second)
        timeline.aggregate(first)
        del timeline.calls[5]  # its Train stands in front already
    else:
        timeline.aggregate(first)
        timeline.aggregate(second)
    task = supervised_task("mlp")
    expected = execute(task, timeline, method=Remembering, eager=True)
    assert_same(execute(task, timeline, method=Remembering), expected)


def test_old_versions_are_freed() -> None:
    learner = make_learner(supervised_task("mlp"), max_pending=1)
    timeline = Timeline()
    pending = timeline.dispatch(7)
    for client in range(5):
        timeline.aggregate(timeline.dispatch(client))
        timeline.evaluate()
    timeline.play(learner)
    learner.flush()
    sent = learner._side.models().sent
    assert sorted(sent) == [0, 5]
    learner.drop(pending.version)
    assert sorted(sent) == [5]
