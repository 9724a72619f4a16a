"""The modules of the built-in models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedsim.tasks.modules.networks import Block, LstmLayer, ResidualNetwork
from tests.tasks.models.shapes import START
from tests.tasks.toys import characters, task, toy_dataset


def test_linear_stacks_promise_weight_and_bias_in_order() -> None:
    problem = task(toy_dataset(), "mlp", hidden=[7, 5])
    assert problem.model_family == "mlp"
    assert [
        (name, shape)
        for name, shape in zip(problem.layout.names, problem.layout.shapes, strict=True)
    ] == [
        ("layers.0.weight", (7, 64)),
        ("layers.0.bias", (7,)),
        ("layers.1.weight", (5, 7)),
        ("layers.1.bias", (5,)),
        ("layers.2.weight", (10, 5)),
        ("layers.2.bias", (10,)),
    ]
    values = problem.layout.views(problem.initial(START))
    inputs = problem.inputs(problem.train_x[:3])
    hidden = inputs.flatten(1)
    for layer in range(2):
        hidden = torch.relu(
            hidden @ values[f"layers.{layer}.weight"].T + values[f"layers.{layer}.bias"]
        )
    expected = hidden @ values["layers.2.weight"].T + values["layers.2.bias"]
    assert torch.allclose(functional_call(problem.module, values, (inputs,)), expected)
    assert task(toy_dataset(), "logistic_regression").model_family == "linear"


def test_the_split_linear_model_is_the_papers_objective() -> None:
    dataset = toy_dataset(samples=30, shape=(6,))
    problem = task(dataset, "linear", positive=[1, 3, 5, 7, 9], personal_features=2, penalty=0.1)
    assert problem.layout.names == ("shared", "personal")
    flat = torch.linspace(-1, 1, 6)
    u, v = flat[:4], flat[4:]
    x = problem.inputs(problem.train_x)
    outputs = functional_call(problem.module, problem.layout.views(flat), (x,))
    sign = torch.where(problem.train_y % 2 == 1, 1.0, -1.0)
    by_hand = torch.log1p(torch.exp(-sign * (x[:, :4] @ u + x[:, 4:] @ v)))
    assert torch.allclose(problem.loss.per_sample(outputs, problem.train_y), by_hand, atol=1e-6)
    penalty = problem.loss.penalties(problem.layout.views(flat).values())
    expected = 0.1 * (u @ u / (1 + u @ u) + v @ v / (1 + v @ v))
    assert float(penalty) == pytest.approx(float(expected))
    assert (
        problem.loss.predictions(outputs) == problem.loss.targets(problem.train_y)
    ).float().mean() == (torch.sign(outputs.squeeze(1)) == sign).float().mean()


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
    outputs = shortcut_of(Block(2, 6, 2, False, plain, before=2), IMAGE)
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


def test_our_lstm_is_torchs() -> None:
    ours, theirs = LstmLayer(3, 5), nn.LSTM(3, 5, batch_first=True)
    state = theirs.state_dict()
    with torch.no_grad():
        ours.input_weight.copy_(state["weight_ih_l0"])
        ours.hidden_weight.copy_(state["weight_hh_l0"])
        ours.bias.copy_(state["bias_ih_l0"] + state["bias_hh_l0"])
    inputs = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(ours(inputs), theirs(inputs)[0], atol=1e-6)


def test_the_transformer_attends_to_every_position() -> None:
    problem = task(characters(), "char_transformer")
    views = problem.layout.views(problem.initial(START))
    codes = problem.inputs(problem.train_x[:1])
    reference = functional_call(problem.module, views, (codes,))
    for position in range(codes.shape[1]):
        changed = codes.clone()
        changed[0, position] = (changed[0, position] + 1) % 65
        assert not torch.equal(functional_call(problem.module, views, (changed,)), reference)
