"""Networks that are a sequence of layers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from fedsim.parts.component import Parameters
from fedsim.tasks.sequential import Conv, Dropout, Layer, Linear, SequentialModel
from tests.tasks.toys import toy_dataset


class Tiny(SequentialModel):
    """One convolution and one hidden layer."""

    name: ClassVar[str] = "tiny"
    hidden_layers: ClassVar[tuple[Layer, ...]] = (
        *(Conv(3, 5, padding=1), "relu", "pool"),
        *("flatten", Linear(4), Dropout(0.5)),
    )


def test_a_module_and_its_outline_follow_from_the_layers() -> None:
    """An image of 9 x 8 becomes 7 x 6 by the convolution and 3 x 3 by pooling."""
    model, dataset = Tiny(Parameters()), toy_dataset(shape=(2, 9, 8))
    module = model.build(dataset)
    assert [type(layer) for layer in module.children()] == [
        *(nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Flatten, nn.Linear, nn.Dropout, nn.Linear)
    ]
    assert model.outline(dataset).parameters == (
        ("0.weight", (3, 2, 5, 5)),
        ("0.bias", (3,)),
        ("4.weight", (4, 27)),
        ("4.bias", (4,)),
        ("6.weight", (10, 4)),
        ("6.bias", (10,)),
    )
    assert module(torch.zeros(5, 2, 9, 8)).shape == (5, 10)


def test_pooling_before_relu_gives_the_bits_of_pooling_after_it() -> None:
    """Whole windows below zero, ties and zeros included."""
    values = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)).round()
    relu, pool = nn.ReLU(), nn.MaxPool2d(2)
    results = []
    for layers in (nn.Sequential(pool, relu), nn.Sequential(relu, pool)):
        inputs = values.clone().requires_grad_()
        outputs = layers(inputs)
        (outputs * torch.arange(1.0, outputs.numel() + 1).view_as(outputs)).sum().backward()
        assert inputs.grad is not None
        results.append((outputs, inputs.grad))
    (outputs, gradients), (expected, expected_gradients) = results
    assert torch.equal(outputs, expected)
    assert torch.equal(gradients, expected_gradients)
