"""Training losses on request: exact, without a change of the result, and refused once training has diverged."""

from __future__ import annotations

import pytest
import torch

from fedsim.errors import InvariantViolation, UserError
from fedsim.vocabulary.timeline import Aggregate, Contribution
from tests.learning.problems import (
    Timeline,
    make_learner,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import execute


def test_training_losses_are_a_barrier_and_do_not_change_the_result() -> None:
    task = supervised_task("mlp")
    timeline = Timeline()
    trains = [timeline.dispatch(client) for client in range(4)]
    timeline.calls += [("submit", train) for train in trains]
    learner = make_learner(task)
    timeline.play(learner)
    losses = learner.training_losses([2, 0])
    assert losses.shape == (2,)
    assert (losses > 0).all()
    contributions = tuple(Contribution(train.dispatch_id, train.client, 0) for train in trains)
    learner.submit(Aggregate(1, 1.0, 0, contributions))
    learner.close()
    again = Timeline()
    again.aggregate(*[again.dispatch(client) for client in range(4)])
    state, _ = execute(task, again)
    assert torch.equal(learner.server["model"], state["model"])
    assert learner.training_losses([2, 0]).tolist() == losses.tolist()


def test_losses_of_diverged_training_say_so() -> None:
    """A selection by loss cannot go on; runs that ask for no loss can."""
    training = make_training(optimizer={"name": "sgd", "lr": 1e30}, threads=1)
    learner = make_learner(supervised_task("mlp"), training)
    timeline = Timeline()
    train = timeline.dispatch(0, steps=5)
    timeline.calls.append(("submit", train))
    timeline.play(learner)
    with pytest.raises(UserError, match=r"training\.optimizer\.lr: .*diverged: .* dispatch 0"):
        learner.training_losses([0])


def test_losses_of_the_unknown_are_refused() -> None:
    with pytest.raises(InvariantViolation, match="never submitted"):
        make_learner(quadratic_task()).training_losses([3])
