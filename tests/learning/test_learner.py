"""The deferred learner: hand-worked FedAvg, and the same bits as eager execution whatever the timeline."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import InvariantViolation, UserError
from fedsim.learning.learner import Learner
from fedsim.methods.fedavg import FedAvg
from fedsim.vocabulary.timeline import Aggregate, Contribution, Evaluate, Train
from tests.learning.problems import (
    Remembering,
    Timeline,
    make_learner,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import (
    assert_same,
    buffered,
    checkpoints_of,
    count_groups,
    execute,
    rounds,
)

# -- exact oracles -----------------------------------------------------------------------------


def test_stale_updates_start_from_the_version_they_were_handed() -> None:
    """Client 2 works on version 0 while client 0 makes version 1."""
    timeline = Timeline()
    slow, fast = timeline.dispatch(2, 1), timeline.dispatch(0, 1)
    timeline.aggregate(fast)
    timeline.aggregate(slow)
    state, _ = execute(
        quadratic_task(),
        timeline,
        training=make_training(dtype="float64", optimizer={"name": "sgd", "lr": 0.5}),
    )
    # Both changes are -0.5 x gradient at (4, -4): (3, -8) and (14, -1.25).
    assert state["model"].tolist() == [4 - 1.5 - 7, -4 + 4 + 0.625]


def test_metrics_of_the_quadratic_task_are_exact() -> None:
    timeline = Timeline()
    timeline.evaluate()
    _, rows = execute(quadratic_task(), timeline, training=make_training(dtype="float64"))
    # Objectives at (4, -4): 0.5 (9 + 2 16), 0.5 (0.5 16 + 36), 0.5 (2 49 + 0.25 25).
    (_, metrics) = rows[0]
    assert metrics["loss"] == pytest.approx((20.5 + 22 + 52.125) / 3, rel=1e-14)
    gradient = np.array([3 + 2 + 14, -8 - 6 - 1.25]) / 3
    assert metrics["gradient_norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-14)
    # The mean objective is least where the weighted mean of the centers is.
    optimum = np.array([(1 + 0 - 6) / 3.5, (0 + 2 + 0.25) / 3.25])
    assert metrics["distance"] == pytest.approx(np.linalg.norm([4, -4] - optimum), rel=1e-12)


def test_an_aggregation_of_nobody_is_a_version_of_its_own() -> None:
    timeline = Timeline()
    timeline.aggregate()
    timeline.aggregate(timeline.dispatch(0, 1))
    state, _ = execute(quadratic_task(), timeline, training=make_training(dtype="float64"))
    assert state["model"][0] == pytest.approx(4 - 0.3)


# -- deferral -----------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    in_flight=st.integers(1, 8),
    buffer=st.integers(1, 5),
    max_pending=st.sampled_from([1, 2, 5, 1000]),
)
def test_any_timeline_gives_the_same_bits(
    seed: int, in_flight: int, buffer: int, max_pending: int
) -> None:
    task = quadratic_task(
        centers=[[float(i), float(-i)] for i in range(8)],
        curvatures=0.7,
        samples=None,
        noise_std=0.3,
    )
    timeline = buffered(25, in_flight, buffer, seed=seed)
    expected = execute(task, timeline, method=Remembering, eager=True)
    assert_same(execute(task, timeline, method=Remembering, max_pending=max_pending), expected)


def test_metrics_come_in_order_and_late_and_an_asked_evaluation_is_a_barrier() -> None:
    seen: list[Any] = []
    task, timeline = supervised_task("mlp"), rounds(3, [0, 1])
    learner = make_learner(
        task, on_metrics=lambda what, metrics: seen.append((what.version, metrics))
    )
    timeline.play(learner, until=len(timeline.calls) - 1)
    assert seen == []
    asked = learner.evaluate(Evaluate(3, 3.0, 3))
    assert learner.version == 3
    assert [version for version, _ in seen] == [1, 2]
    _, rows = execute(task, timeline)
    assert [*seen, (3, asked)] == rows


# -- contradictions -----------------------------------------------------------------------------


def test_an_aggregation_of_the_unknown_is_refused() -> None:
    learner = make_learner(quadratic_task())
    learner.submit(Aggregate(1, 0.0, 0, (Contribution(5, 0, 0),)))
    with pytest.raises(InvariantViolation, match="never submitted"):
        learner.flush()


def test_client_memory_is_closed_to_the_server() -> None:
    class Peeking(Remembering):
        name = "peeking"

        def aggregate(self, server: Any, updates: Any) -> Any:
            updates.memory("own", 0)

    timeline = rounds(1, [0])
    with pytest.raises(ValueError, match="kept by the clients"):
        execute(quadratic_task(), timeline, method=Peeking)


# -- resume -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [FedAvg, Remembering])
@pytest.mark.parametrize("max_pending", [1, 5])
def test_resume_from_any_checkpoint_gives_the_same_bits(method: Any, max_pending: int) -> None:
    task = supervised_task("linear", own_test=True)
    timeline = buffered(30, seed=4)
    options = {"method": method, "max_pending": max_pending}
    expected = execute(task, timeline, **options)
    taken = checkpoints_of(task, timeline, **options)
    assert len(taken) > 3
    for checkpoint in taken:
        assert_same(execute(task, timeline, checkpoint=checkpoint, **options), expected)


def test_resume_with_trained_updates_that_wait() -> None:
    """A loss was asked for, so a trained update waits for its aggregation when the checkpoint is taken."""
    task = supervised_task("linear")
    timeline = Timeline()
    trains = [timeline.dispatch(client) for client in range(4)]
    timeline.calls += [("submit", train) for train in trains]
    ending = Aggregate(
        1, 1.0, 0, tuple(Contribution(train.dispatch_id, train.client, 0) for train in trains)
    )
    learner = timeline.play(make_learner(task))
    losses = learner.training_losses([1, 2])
    tensors, meta = learner.state()
    assert meta["waiting"] == [1, 2]
    assert meta["untrained"] == [0, 3]
    resumed = make_learner(task, checkpoint=(tensors, meta))
    timeline.play(resumed)
    assert resumed.training_losses([1, 2]).tolist() == losses.tolist()
    for each in (learner, resumed):
        each.submit(ending)
        each.close()
    assert torch.equal(learner.server["model"], resumed.server["model"])


def test_client_accuracies_are_a_barrier_and_answered_again() -> None:
    """Of the newest version; a resumed learner has the answers of its checkpoint."""
    task = supervised_task("linear", own_test=True)
    timeline = rounds(2, [0, 1])
    learner = timeline.play(make_learner(task))
    accuracies = learner.client_accuracies(2)
    assert learner.version == 2
    per_client = learner.client_metrics()
    assert per_client is not None
    assert accuracies.tolist() == per_client.accuracy.tolist()
    tensors, meta = learner.state()
    resumed = make_learner(task, checkpoint=(tensors, meta))
    resumed._measurement = None  # type: ignore[assignment]
    assert resumed.client_accuracies(2).tolist() == accuracies.tolist()
    with pytest.raises(UserError, match="on their own test samples, but have none"):
        make_learner(supervised_task("linear")).client_accuracies(0)


def test_asked_evaluations_are_answered_again_without_training() -> None:
    task = supervised_task("linear")
    timeline = rounds(3, [0, 1])
    learner = timeline.play(make_learner(task))
    asked = learner.evaluate(Evaluate(3, 3.5, 3))
    tensors, meta = learner.state()
    resumed = make_learner(task, checkpoint=(tensors, meta))
    assert count_groups(timeline, resumed) == []
    assert resumed.evaluate(Evaluate(3, 3.5, 3)) == asked


def test_state_needs_a_moment_of_rest_and_the_same_precision() -> None:
    learner = rounds(1, [0]).play(make_learner(quadratic_task()))
    with pytest.raises(RuntimeError, match="pending"):
        learner.state()
    learner.flush()
    training = make_training(dtype="float64")
    with pytest.raises(UserError, match="was written with"):
        make_learner(quadratic_task(), training, checkpoint=learner.state())


@pytest.mark.parametrize(
    ("dispatch_s", "version_s", "versions", "expected"),
    [(3, 0, 26, [16, 20, 24]), (0, 4, 6, [3, 6])],
)
def test_training_is_not_put_off(
    dispatch_s: int,
    version_s: int,
    versions: int,
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One dispatch of 3 s per version: at first 16 together, then 4 (12 s), the fewest that take 10 s.

    With 4 s from one version to the next, the third is the first after 10 s, although 16 dispatches may be pending.
    """
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr("fedsim.learning.learner.time", clock)
    train = Learner._train

    def slowly(learner: Learner, wave: list[Train]) -> None:
        train(learner, wave)
        clock.now += dispatch_s * len(wave)

    monkeypatch.setattr(Learner, "_train", slowly)
    rests: list[int] = []
    timeline = Timeline()
    for number in range(versions):
        timeline.aggregate(timeline.dispatch(number % 3))
    learner = make_learner(quadratic_task(), on_rest=lambda it: rests.append(it.version))
    for name, argument in timeline.calls:
        clock.now += version_s * isinstance(argument, Aggregate)
        getattr(learner, name)(argument)
    assert rests == expected
