"""Samples on the device: the same inputs however they are kept and gathered."""

import pytest
import torch

from fedsim.learning import samples as module
from fedsim.learning.batches import Moves
from fedsim.learning.device import Execution
from fedsim.learning.samples import Samples
from tests.learning.images import colour_task
from tests.learning.problems import make_training

ROWS = torch.tensor([3, 0, 3, 31])


@pytest.fixture(params=["kept", "converted per batch"])
def samples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Samples:
    if request.param != "kept":
        monkeypatch.setattr(module, "_CONVERTED_BYTES", 0)
    task = colour_task()
    return Samples(task, task.train_x, task.train_y, Execution.of(make_training(dtype="float64")))


def test_inputs_are_those_of_the_task(samples: Samples) -> None:
    whole = samples.task.inputs(samples.task.train_x, torch.float64)
    assert len(samples) == len(whole)
    assert torch.equal(samples.gather(ROWS), whole[ROWS])
    assert torch.equal(samples.slice(5, 9), whole[5:9])


def test_pixels_outside_of_a_moved_image_are_black(samples: Samples) -> None:
    """Black is pixel 0, whose input is the shift of the channel."""
    zero = torch.zeros(len(ROWS), dtype=torch.int64)
    moves = Moves(down=zero + 5, right=zero, mirrored=zero.bool())
    got = samples.gather(ROWS, moves=moves)
    black = torch.tensor([0.5, -1, 0.25], dtype=torch.float64)[:, None, None]
    assert torch.equal(got, black.expand_as(got))
