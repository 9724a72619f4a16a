"""Residual blocks: their outputs with convolutions of zeros are those of the shortcut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedsim.tasks.modules.residual import Block, ResidualNetwork


def plain(channels: int) -> nn.Module:
    return nn.Identity()


def shortcut_of(block: Block, inputs: Tensor) -> Tensor:
    """The output of a block whose convolutions add nothing."""
    nn.init.zeros_(block.conv2.weight)
    with torch.no_grad():
        outputs: Tensor = block(inputs)
    return outputs


IMAGE = torch.arange(-8.0, 24.0).reshape(1, 2, 4, 4)


def test_a_block_of_the_same_shape_adds_its_input() -> None:
    block = Block(2, 2, 1, True, plain)
    assert block.projection is None
    assert torch.equal(shortcut_of(block, IMAGE), IMAGE.relu())


def test_a_shortcut_without_parameters_skips_pixels_and_adds_channels_of_zeros() -> None:
    outputs = shortcut_of(Block(2, 6, 2, False, plain), IMAGE)
    assert outputs.shape == (1, 6, 2, 2)
    assert torch.equal(outputs[:, 2:4], IMAGE[:, :, ::2, ::2].relu())
    assert not outputs[:, [0, 1, 4, 5]].any()


def test_a_projection_is_a_convolution_of_single_pixels() -> None:
    block = Block(2, 3, 2, True, plain)
    assert isinstance(block.projection, nn.Sequential)
    weight = block.projection[0].weight[:, :, 0, 0]
    expected = torch.einsum("oi,nihw->nohw", weight, IMAGE[:, :, ::2, ::2]).relu()
    assert torch.allclose(shortcut_of(block, IMAGE), expected, atol=1e-5)


@pytest.mark.parametrize("groups", [None, 2])
def test_a_network_halves_the_image_in_every_stage_but_the_first(groups: int | None) -> None:
    network = ResidualNetwork(1, (4, 8, 16), 2, True, 10, groups)
    shapes = []
    for block in network.stages:
        block.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape[1:])))
    assert network(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert shapes == [(4, 8, 8)] * 2 + [(8, 4, 4)] * 2 + [(16, 2, 2)] * 2
    norms = {type(module) for module in network.modules() if "Norm" in type(module).__name__}
    assert norms == {nn.BatchNorm2d if groups is None else nn.GroupNorm}


def test_all_state_can_be_averaged() -> None:
    network = ResidualNetwork(1, (4,), 1, True, 10, None)
    assert all(value.is_floating_point() for value in network.state_dict().values())
