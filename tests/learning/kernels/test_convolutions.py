"""Convolutions of several clients as matrix products: gradients are those of torch's grouped convolutions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedsim.learning.kernels.convolutions import BatchedConvolutions


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (3, {"out_channels": 5, "kernel_size": 3}),
        (3, {"out_channels": 4, "kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
        (2, {"out_channels": 4, "kernel_size": 1, "stride": 2, "bias": False}),
        (2, {"out_channels": 4, "kernel_size": 2, "stride": 3, "padding": 1}),
        # Left to torch.
        (4, {"out_channels": 4, "kernel_size": 3, "groups": 2}),
        (2, {"out_channels": 4, "kernel_size": 3, "padding": "same"}),
        (2, {"out_channels": 4, "kernel_size": 3, "dilation": 2}),
    ],
)
def test_gradients_are_those_of_torch(channels: int, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    module = nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, **options)
    )
    parameters = {name: random(3, *tensor.shape) for name, tensor in module.named_parameters()}

    def value(parameters: dict[str, Tensor], images: Tensor) -> Tensor:
        return functional_call(module, parameters, (images,)).square().sum()

    function = vmap(grad_and_value(value))
    images = random(3, 4, channels, 9, 8)
    expected = function(parameters, images)
    with BatchedConvolutions():
        result = function(parameters, images)
    torch.testing.assert_close(result, expected, atol=1e-9, rtol=1e-12)


def test_half_precision_is_that_of_autocast() -> None:
    module = nn.Conv2d(2, 3, 3)
    parameters = {name: torch.randn(2, *t.shape) for name, t in module.named_parameters()}
    function = vmap(lambda parameters, images: functional_call(module, parameters, (images,)))
    images = torch.randn(2, 4, 2, 6, 6)
    with torch.autocast("cpu", torch.bfloat16), BatchedConvolutions():
        result = function(parameters, images)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), function(parameters, images), atol=0.05, rtol=0.05)
