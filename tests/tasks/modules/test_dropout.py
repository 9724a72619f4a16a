"""Dropout that can be repeated."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedsim.tasks.modules.dropout import KeyedFunctions, has_dropout, key_dropout, seed_dropout
from tests.tasks.models.shapes import GREY, START, dataset_of
from tests.tasks.toys import task


def test_dropout_masks_are_a_function_of_the_seed() -> None:
    problem = task(dataset_of(GREY), "fedsum_mnist_cnn")
    assert has_dropout(problem.module)
    assert not has_dropout(task(dataset_of(GREY), "mlp").module)
    views = problem.layout.views(problem.initial(START))
    inputs = problem.inputs(problem.train_x[:4])

    def outputs(seed: int) -> torch.Tensor:
        seed_dropout(problem.module, seed)
        return functional_call(problem.module, views, (inputs,))

    problem.module.train()
    first = outputs(5)
    torch.manual_seed(99)
    assert torch.equal(outputs(5), first)
    assert not torch.equal(outputs(6), first)
    problem.module.eval()
    assert torch.equal(outputs(5), outputs(6))


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    from fedsim.tasks.modules.dropout import KeyedDropout

    layer = KeyedDropout(0.2)
    with pytest.raises(RuntimeError, match="dropout is active in evaluation"):
        layer(torch.ones(2))
    seed_dropout(layer, 0)
    values = layer(torch.ones(100_000))
    assert set(values.unique().tolist()) == {0.0, 1.25}
    assert float((values == 0).float().mean()) == pytest.approx(0.2, abs=0.01)
    channels = KeyedDropout(0.5, whole_channels=True)
    seed_dropout(channels, 0)
    dropped = channels(torch.ones(50, 8, 3, 3))
    assert (dropped.flatten(2).std(dim=2) == 0).all(), "a channel is dropped as a whole or kept"


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_functions_that_drop_channels_have_the_masks_of_the_layers(dimensions: int) -> None:
    inputs = torch.ones(6, 8, *[3] * dimensions)
    layer = key_dropout(getattr(nn, f"Dropout{dimensions}d")(0.5))
    seed_dropout(layer, 3)
    expected = layer(inputs)
    function = getattr(nn.functional, f"dropout{dimensions}d")
    with KeyedFunctions(torch.Generator().manual_seed(3)):
        assert torch.equal(function(inputs, 0.5), expected)
        assert torch.equal(function(inputs, 0.5, training=False), inputs)
    assert not torch.equal(expected, inputs)
