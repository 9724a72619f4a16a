"""Masks of dropout for all clients at once; modules that cannot be vectorized are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsim.errors import UserError
from fedsim.learning.kernels import VmapKernel
from fedsim.tasks.kinds.supervised import SupervisedTask
from tests.learning.kernels.building import build, models_of, run_gradients
from tests.learning.problems import SHAPE, Built, kernel_of, make_training, supervised_task


class Attending(nn.Module):
    """Draws masks in a layer, in fused attention, and in a function whose first axis is not that of the samples."""

    def __init__(self) -> None:
        super().__init__()
        width = SHAPE[-1]
        self.query, self.head = nn.Linear(width, width), nn.Linear(int(np.prod(SHAPE)), 5)
        self.drop = nn.Dropout(0.2)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.drop(inputs.flatten(1, 2))
        attended = functional.scaled_dot_product_attention(
            self.query(rows), rows, rows, dropout_p=0.3 if self.training else 0.0
        )
        hidden = functional.dropout(attended.flatten(0, 1), 0.4, self.training)
        result: Tensor = self.head(hidden.view(len(inputs), -1))
        return result


@pytest.mark.parametrize("model", ["dropout", "attending"])
def test_masks_are_those_of_the_loop(model: str) -> None:
    """Also in short mini-batches beside long ones: clients with 20, 33, 50 and 64 samples."""
    task = supervised_task("dropout")
    if model == "attending":
        task = SupervisedTask(task.dataset, task.partition, Built(Attending, "module"))
    weights = models_of(task, 4, torch.float64)
    clients, steps = np.array([5, 3, 2, 0]), np.array([6, 5, 5, 2])
    stacked, alone = (
        run_gradients(build(kind, task, torch.float64), weights, clients, steps)
        for kind in ("vmap", "loop")
    )
    for one, other in zip(stacked, alone, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-11)
    assert task.drops
    training = make_training(executor="stacked")
    kernel = kernel_of(task, training)
    assert isinstance(kernel, VmapKernel)
    assert not kernel.recorded


def test_what_cannot_be_stacked_is_refused() -> None:
    task = supervised_task("batch_norm")
    training = make_training(executor="stacked")
    with pytest.raises(UserError, match="cannot train several clients in one tensor") as caught:
        kernel_of(task, training)
    assert "training changes its buffers (" in caught.value.message
    assert "running_mean, ...), such as the statistics of batch norm" in caught.value.message
    assert caught.value.hint == (
        "use auto or parallel, which train the clients on worker threads, or group normalization instead of batch "
        "normalization"
    )
