"""The binary linear model with personal features against automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.learning.device import reproducible
from fedsim.learning.kernels import LoopKernel, SplitLinearKernel
from tests.learning.kernels.building import binary_task, build, models_of, run_gradients, squares_of
from tests.learning.problems import kernel_of, make_training


def test_squared_losses_of_the_binary_linear_model() -> None:
    """Like the others, and without its penalty."""
    task = binary_task(personal_features=4, penalty=0.3, bias=True)
    model = models_of(task, 1, torch.float64)
    rows = task.rows[task.offsets[0] : task.offsets[1]].tolist()
    for kind in ("split_linear", "loop"):
        session = build(kind, task, torch.float64, squared_losses=True).session(
            np.array([0]), np.zeros(1, int), np.array([1]), 0
        )
        losses = session.gradients(0, model, torch.zeros_like(model))
        torch.testing.assert_close(losses[0], squares_of(task, model[0], rows))


BINARY: list[dict[str, object]] = [
    {},
    {"personal_features": 4, "penalty": 0.3},
    {"personal_features": 4, "penalty": 0.3, "bias": True},
    {"personal_features": 5, "shuffle_features": True, "unit_norm": True, "positive": [0]},
]


@pytest.mark.parametrize("params", BINARY, ids=str)
def test_the_binary_linear_model_by_hand_and_by_automatic_differentiation(
    params: dict[str, object],
) -> None:
    task = binary_task(**params)
    clients, steps = np.array([4, 1, 2, 0, 3]), np.array([7, 6, 6, 4, 1])
    weights = models_of(task, 5, torch.float64)
    results = []
    for executor, expected in (("auto", SplitLinearKernel), ("plain", LoopKernel)):
        kernel = kernel_of(task, make_training(executor=executor, dtype="float64"))
        assert type(kernel) is expected
        collected = []
        for width in np.unique(kernel.shape_class(clients)):
            alike = np.flatnonzero(kernel.shape_class(clients) == width)
            collected += run_gradients(kernel, weights[alike], clients[alike], steps[alike])
        results.append(collected)
    for by_hand, automatic in zip(*results, strict=True):
        torch.testing.assert_close(by_hand, automatic, atol=1e-14, rtol=1e-12)


def test_the_binary_linear_model_is_bitwise_the_same_in_every_group() -> None:
    task = binary_task(personal_features=4, penalty=0.3, bias=True)
    kernel = kernel_of(task, make_training())
    assert kernel.group_invariant
    clients, steps = np.array([4, 2, 1, 4, 2, 1, 4]), np.array([5, 5, 4, 3, 2, 2, 1])
    weights = models_of(task, 7, torch.float32)
    with reproducible():
        together = run_gradients(kernel, weights, clients, steps)
        for pick in ([0], [3], [6], [1, 4], [0, 2, 5], list(range(1, 7))):
            apart = run_gradients(kernel, weights[pick], clients[pick], steps[pick])
            for row, picked in enumerate(pick):
                assert torch.equal(apart[row], together[picked])
