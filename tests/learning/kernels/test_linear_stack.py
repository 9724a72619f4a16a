"""Stacks of linear layers: their views in a vector, and gradients after fused steps."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.learning.kernels import LinearStackKernel
from fedsim.learning.kernels.linear_stack import layers_of, views
from fedsim.learning.local_training import active_rows, row_matrix
from fedsim.tasks.layout import Layout
from tests.learning.kernels.building import build, models_of, run_gradients
from tests.learning.problems import supervised_task


@pytest.mark.usefixtures("client_by_client")
def test_gradients_after_fused_steps() -> None:
    """They share work space, which autograd may have to know of."""
    task = supervised_task("mlp")
    kernel = build("linear_stack", task)
    weights = models_of(task, 2, torch.float32)
    steps = np.array([3, 2])
    with torch.no_grad():
        kernel.session(np.arange(2), np.zeros(2, int), steps, 0).descend(
            weights.clone(), torch.full((2,), 0.1), active_rows(steps)
        )
    one_by_one = run_gradients(kernel, weights, np.arange(2), steps)
    expected = run_gradients(build("linear_stack", task), weights, np.arange(2), steps)
    assert all(torch.equal(one, other) for one, other in zip(one_by_one, expected, strict=True))


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="this build of torch has no oneDNN",
)
def test_steps_by_onednn_are_those_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearStackKernel, "client_by_client", True)
    task, steps = supervised_task("mlp"), np.array([4, 2])
    assert len(task.layout.shapes) >= 6, "a layer between two others"

    def descend(onednn_from: int) -> tuple[Tensor, Tensor]:
        kernel = build("linear_stack", task)
        assert isinstance(kernel, LinearStackKernel)
        kernel.onednn_from = onednn_from
        weights = row_matrix(2, task.layout.size, like=torch.zeros(1))
        weights.copy_(models_of(task, 2, torch.float32))
        session = kernel.session(np.arange(2), np.zeros(2, int), steps, 0)
        with torch.no_grad():
            return weights, session.descend(weights, torch.full((2,), 0.1), active_rows(steps))

    models, losses = descend(0)
    expected_models, expected_losses = descend(sys.maxsize)
    torch.testing.assert_close(models, expected_models, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(losses, expected_losses, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("size", "group"), [(400_000, 32), (2_000_000, 8), (40_000_000, 4)])
def test_groups_of_larger_models_have_up_to_16_megabytes(
    size: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearStackKernel, "model_bytes", size)
    assert build("linear_stack", supervised_task("mlp")).largest_group() == group


def test_weights_and_biases_are_views_of_the_layout() -> None:
    """Of one vector, and of a stack of vectors."""
    shapes = [("a.weight", (2, 3)), ("a.bias", (2,)), ("b.weight", (1, 2)), ("last", (4, 1))]
    layers, flat = layers_of(Layout.of(shapes)), torch.arange(14.0).repeat(5, 1)
    for vectors in (flat[0], flat):
        weights, biases = views(layers, vectors)
        assert [weight.view(-1, *weight.shape[-2:])[0].tolist() for weight in weights] == [
            [[0, 1, 2], [3, 4, 5]],
            [[8, 9]],
            [[10], [11], [12], [13]],
        ]
        assert [bias is None for bias in biases] == [False, True, True]
    assert biases[0] is not None
    biases[0] += 1
    assert (flat[:, 6:8] == torch.tensor([7.0, 8.0])).all()
