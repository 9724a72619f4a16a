"""Updates on their way into an aggregation: on disk beyond a budget, and summed in order of arrival."""

import numpy as np
import pytest
import torch

from fedsim.errors import UserError
from fedsim.learning.memory import Budget, StateStore
from fedsim.learning.updates import Contributions, WaitingUpdates
from fedsim.methods.base import Vector
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train
from tests.learning.problems import (
    Timeline,
    make_context,
    make_learner,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import execute

CPU = torch.device("cpu")
ELEMENTS = 6
ROW_BYTES = 4 * ELEMENTS


def test_waiting_updates_over_the_budget_go_to_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.learning.updates.host_budget", lambda most, share: 3 * ROW_BYTES)
    waiting = WaitingUpdates([Vector("delta", ELEMENTS)], torch.float32, CPU)
    rows = torch.randn(5, ELEMENTS)
    waiting.put([4, 5], {"delta": rows[:2]})
    waiting.put([6, 7, 8], {"delta": rows[2:]})
    assert waiting.ids() == [4, 5, 6, 7, 8]
    for number in range(5):
        assert torch.equal(waiting.row(4 + number, "delta"), rows[number])
    for number in (4, 7):
        waiting.drop(number)
        assert number not in waiting
    assert waiting.ids() == [5, 6, 8]


def test_sums_are_taken_in_order_of_arrival() -> None:
    """In float32 another order gives other bits; 1e8 swallows what was added before it."""
    vectors = [Vector("delta", 1)]
    waiting = WaitingUpdates(vectors, torch.float32, CPU)
    waiting.put([0, 1, 2], {"delta": torch.tensor([[1e8], [3.0], [-1e8]])})
    task = quadratic_task()
    context = make_context(task, make_training(), local_steps=1)
    store = StateStore({}, torch.float32, CPU, Budget(0, 0), torch.zeros(1))
    sums = []
    for arrival in ([0, 1, 2], [0, 2, 1]):
        trains = [Train(number, number, 0, 0, 0, 1, 1, 0.0) for number in arrival]
        contributions = tuple(Contribution(number, number, 0) for number in arrival)
        aggregate = Aggregate(1, 0.0, 0, contributions)
        updates = Contributions(aggregate, trains, waiting, store, context)
        sums.append(updates.weighted_sum("delta", [1.0, 1.0, 1.0]).item())
    assert sums == [0.0, 3.0]
    with pytest.raises(ValueError, match="weights of shape"):
        updates.weighted_sum("delta", [1.0])
    with pytest.raises(UserError, match="dispatch 2 of client 2 has weight inf in version 1"):
        updates.weighted_sum("delta", [1.0, 1.0, 1.0], [1.0, np.inf, 1.0])


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
