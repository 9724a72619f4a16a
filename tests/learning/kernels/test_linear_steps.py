"""The compiled steps of linear layers have the bits of the Python ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.learning.device import reproducible
from fedsim.learning.kernels import LinearStackKernel
from fedsim.learning.kernels.base import Correction
from fedsim.learning.kernels.linear_steps import PYTHON_STEPS
from fedsim.learning.local_training import active_rows, row_matrix
from tests.learning.kernels.building import build, models_of, run_gradients
from tests.learning.problems import supervised_task


@pytest.mark.parametrize("corrected", ["plain", "pull", "shift"])
@pytest.mark.parametrize("way", ["together", "client by client", "gradients"])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_torchscript_has_the_bits_of_python(
    model: str, way: str, corrected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is called again and again: TorchScript optimizes what it has seen twice."""
    task = supervised_task(model, sizes=(50,) * 4)
    monkeypatch.setattr(LinearStackKernel, "client_by_client", way == "client by client")
    steps = np.array([7, 7, 5, 2])

    def run() -> list[Tensor]:
        weights = row_matrix(4, task.layout.size, like=torch.zeros(1))
        weights.copy_(models_of(task, 4, torch.float32))
        kernel = build("linear_stack", task)
        with reproducible(), torch.no_grad():
            if way == "gradients":
                return run_gradients(kernel, weights, np.arange(4), steps)
            session = kernel.session(np.arange(4), np.zeros(4, int), steps, 0)
            start, vectors = weights.clone(), weights.flip(0)
            correction = {
                "plain": None,
                "pull": Correction(weights, weights, vectors, 0.3),
                "shift": Correction(start, torch.zeros_like(start), constant=vectors),
            }[corrected]
            rates, active = torch.full((4,), 0.1), active_rows(steps)
            return [weights, session.descend(weights, rates, active, correction)]

    scripted = [run() for _ in range(4)]
    monkeypatch.setattr("fedsim.learning.kernels.linear_stack.compiled", lambda: PYTHON_STEPS)
    for tensors in scripted:
        for tensor, expected in zip(tensors, run(), strict=True):
            assert torch.equal(tensor, expected)
