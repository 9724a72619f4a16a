"""The server's side of learning: groups, received updates, versions and what a checkpoint contains."""

from collections.abc import Mapping

import pytest
import torch

from fedsim.learning.device import Execution
from fedsim.learning.server_side import ServerSide
from fedsim.methods.base import LocalUpdate, Memory
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train
from tests.learning.problems import (
    Remembering,
    make_learner,
    make_station,
    make_training,
    quadratic_task,
)

TRAINING = make_training(dtype="float64", threads=1)


def server_side(**memories: bool) -> ServerSide:
    """A server of the remembering method on the quadratic task; whether its memory outlives lost updates."""
    method = Remembering
    if memories:

        class Keeping(Remembering):
            def memories(self) -> Mapping[str, Memory]:
                memory = Memory(self.context.layout.size, kept_when_lost=True)
                return super().memories() | {"own": memory}

        method = Keeping
    return ServerSide(make_station(quadratic_task(), TRAINING, method))


def train_of(dispatch_id: int, client: int, *, version: int = 0, used: bool = True) -> Train:
    return Train(dispatch_id, client, 0, version, version, 3, 4, 0.0, used)


def update_of(server: ServerSide, *values: float) -> LocalUpdate:
    """Rows filled with one value each: changes, gradients ten times as large, memories a hundred times."""
    rows = torch.tensor(values, dtype=torch.float64)[:, None].expand(
        -1, len(server.current["model"])
    )
    return LocalUpdate(
        {"delta": rows.clone(), "gradient": 10 * rows},
        torch.zeros(len(values), dtype=torch.float64),
        {"own": 100 * rows},
    )


def receive(server: ServerSide, trains: list[Train], *values: float) -> None:
    for train in trains:
        server.models().hold(train.version)
    server.receive(trains, update_of(server, *values))


def aggregate_of(version: int, *trains: Train) -> Aggregate:
    contributions = tuple(Contribution(train.dispatch_id, train.client, 0) for train in trains)
    return Aggregate(version, 1.0, version - 1, contributions)


def test_a_group_has_a_row_for_each_dispatch() -> None:
    server = server_side()
    trains = [train_of(7, 2), train_of(9, 0)]
    cohort = server.group(trains).cohort(trains, Execution.of(TRAINING))
    assert cohort.clients.tolist() == [2, 0]
    assert cohort.steps.tolist() == [3, 3]
    assert cohort.steps_assigned.tolist() == [4, 4]
    assert set(cohort.down) == {"model", "control"}
    assert cohort.learning_rates.tolist() == [0.1, 0.1]


def test_vectors_wait_for_their_aggregation_and_memories_are_kept_at_once() -> None:
    server = server_side()
    trains = [train_of(0, 1), train_of(1, 2)]
    start = server.current["model"].clone()
    receive(server, trains, 1.0, 3.0)
    assert server.waiting.ids() == [0, 1]
    assert server.store.rows([1, 2])["own"][:, 0].tolist() == [100.0, 300.0]
    assert torch.equal(server.current["model"], start)
    server.aggregate(aggregate_of(1, *trains), trains)
    assert server.models().number == 1
    assert server.waiting.ids() == []
    # The clients have 2 and 5 samples.
    expected = start + (2 * 1.0 + 5 * 3.0) / 7
    assert torch.allclose(server.current["model"], expected, rtol=1e-15)


@pytest.mark.parametrize("outlives", [False, True])
def test_an_unused_update_leaves_only_the_memory_that_outlives_it(outlives: bool) -> None:
    server = server_side(kept_when_lost=True) if outlives else server_side()
    receive(server, [train_of(0, 1, used=False), train_of(1, 2)], 1.0, 3.0)
    expected = [100.0 if outlives else 0.0, 300.0]
    assert server.store.rows([1, 2])["own"][:, 0].tolist() == expected


def test_a_checkpoint_restores_the_state_waiting_vectors_and_sent_versions() -> None:
    server = server_side()
    waiting, used = train_of(0, 1), train_of(1, 2)
    server.models().hold(0)
    receive(server, [waiting, used], 1.0, 3.0)
    server.models().announce(1)
    server.aggregate(aggregate_of(1, used), [used])
    tensors = server.tensors()
    names = {"server/model", "server/control", "sent/0/model", "sent/0/control"}
    assert set(tensors) == names | {"waiting/0/delta", "waiting/0/gradient"}
    resumed = server_side()
    resumed.restore(1, {name: value.clone() for name, value in tensors.items()})
    assert resumed.models().number == 1
    assert set(resumed.tensors()) == set(tensors)
    assert all(torch.equal(resumed.tensors()[name], value) for name, value in tensors.items())


def test_results_have_the_names_of_the_layout() -> None:
    learner = make_learner(quadratic_task(), TRAINING, Remembering)
    server = learner._side
    assert learner.personal_parts() == {}, "nobody has participated"
    receive(server, [train_of(0, 2)], 1.0)
    parts = learner.personal_parts()
    (name,) = learner.named_model()
    assert parts["clients"].tolist() == [2]
    expected = server.current["model"] - 0.1 * 100.0
    assert torch.equal(parts[name][0].flatten(), expected)
