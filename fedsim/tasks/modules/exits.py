"""Modules with a classifier after each of their blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsim.tasks.modules.networks import LinearStack, ResidualNetwork


class EarlyExits(nn.Module):
    """Blocks in sequence, each followed by a classifier (exit).

    Args:
        module: a stack of linear layers, a plain sequence of layers or a residual network, which is taken apart.
        inputs: a sample (1, *input_shape), from which the sizes of the exits follow.
        classes: outputs of an exit.
    """

    def __init__(self, module: nn.Module, inputs: Tensor, classes: int) -> None:
        super().__init__()
        blocks, last = _taken_apart(module)
        exits: list[nn.Module] = []
        values = inputs
        with torch.no_grad():
            for block in blocks:
                values = block.eval()(values)
                exits.append(_Exit(values.shape[1], classes))
        self.blocks = nn.ModuleList(block.train() for block in blocks)
        self.exits = nn.ModuleList([*exits[:-1], last])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """Outputs (n, classes) of every exit."""
        outputs = []
        for block, leave in zip(self.blocks, self.exits, strict=True):
            inputs = block(inputs)
            outputs.append(leave(inputs))
        return outputs

    def keep(self, count: int) -> None:
        """Leave the first blocks and their exits."""
        self.blocks, self.exits = self.blocks[:count], self.exits[:count]


class _Exit(nn.Module):
    """The mean over all pixels, if there are any, and a linear layer."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(features, classes)

    def forward(self, values: Tensor) -> Tensor:
        result: Tensor = self.classifier(values.flatten(2).mean(2) if values.ndim > 2 else values)
        return result


def _taken_apart(module: nn.Module) -> tuple[list[nn.Module], nn.Module]:
    """The blocks of a module, and its last layers."""
    if isinstance(module, LinearStack):
        *hidden, last = module.layers
        return [nn.Sequential(nn.Flatten(), layer, nn.ReLU()) for layer in hidden], last
    if isinstance(module, ResidualNetwork):
        blocks = list(module.stages)
        stages = [blocks[at : at + module.blocks] for at in range(0, len(blocks), module.blocks)]
        stages[0] = [module.stem, module.stem_norm, nn.ReLU(), *stages[0]]
        last_exit = _Exit(1, 1)
        last_exit.classifier = module.classifier
        return [nn.Sequential(*stage) for stage in stages], last_exit
    assert isinstance(module, nn.Sequential)
    blocks, layers = [], list[nn.Module]()
    for layer in module:
        layers.append(layer)
        if isinstance(layer, nn.ReLU):
            blocks.append(nn.Sequential(*layers))
            layers = []
    return blocks, nn.Sequential(*layers)


def join_exits(module: nn.Module) -> None:
    """Make a module that returns the outputs of its exits, in order, return one tensor.

    In training, (n, exits, classes); in evaluation, the logarithm of the mean of their probabilities, (n, classes).
    """
    module.register_forward_hook(lambda layer, _, outputs: _joined(outputs, layer.training))


def _joined(outputs: list[Tensor], training: bool) -> Tensor:
    stacked = torch.stack(list(outputs), 1)
    if training:
        return stacked
    return torch.logsumexp(functional.log_softmax(stacked, 2), 1) - math.log(len(outputs))
