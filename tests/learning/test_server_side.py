"""The server's side of learning: groups, received updates, versions and what a checkpoint contains."""

from collections.abc import Mapping

import torch

from fedsim.learning.server_side import ServerSide
from fedsim.methods.base import LocalUpdate, Memory, Method
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train
from tests.learning.problems import Remembering, make_station, make_training, quadratic_task

TRAINING = make_training(dtype="float64", threads=1)


class Keeping(Remembering):
    """The memory of a client outlives lost updates."""

    def memories(self) -> Mapping[str, Memory]:
        memory = Memory(self.context.layout.size, kept_when_lost=True)
        return super().memories() | {"own": memory}


def server_side(method: type[Method] = Remembering) -> ServerSide:
    return ServerSide(make_station(quadratic_task(), TRAINING, method))


def train_of(dispatch_id: int, client: int, *, used: bool = True) -> Train:
    return Train(dispatch_id, client, 0, 0, 0, 3, 4, 0.0, used)


def receive(server: ServerSide, trains: list[Train], *values: float) -> None:
    """Updates filled with one value each: changes, gradients ten times as large, memories a hundred times."""
    for _ in trains:
        server.versions.hold(0)
    rows = torch.tensor(values, dtype=torch.float64)[:, None].expand(-1, 2)
    vectors = {"delta": rows.clone(), "gradient": 10 * rows}
    server.receive(trains, LocalUpdate(vectors, torch.zeros(2), {"own": 100 * rows}))


def test_vectors_wait_for_their_aggregation_and_memories_are_kept_at_once() -> None:
    server = server_side()
    trains = [train_of(0, 1), train_of(1, 2)]
    start = server.current["model"].clone()
    receive(server, trains, 1.0, 3.0)
    assert server.waiting.ids() == [0, 1]
    assert server.store.rows([1, 2])["own"][:, 0].tolist() == [100.0, 300.0]
    assert torch.equal(server.current["model"], start)
    contributions = (Contribution(0, 1, 0), Contribution(1, 2, 0))
    server.aggregate(Aggregate(1, 1.0, 0, contributions), trains)
    assert server.version == 1
    assert server.waiting.ids() == []
    # The clients have 2 and 5 samples.
    expected = start + (2 * 1.0 + 5 * 3.0) / 7
    assert torch.allclose(server.current["model"], expected, rtol=1e-15)


def test_an_unused_update_leaves_only_the_memory_that_outlives_it() -> None:
    for method, left in ((Remembering, 0.0), (Keeping, 100.0)):
        server = server_side(method)
        receive(server, [train_of(0, 1, used=False), train_of(1, 2)], 1.0, 3.0)
        assert server.store.rows([1, 2])["own"][:, 0].tolist() == [left, 300.0]
