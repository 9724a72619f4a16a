"""Torch modules of the built-in models, and their initial parameters; imported only when a module is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional, init

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream


class LinearStack(nn.Module):
    """Linear layers on flattened inputs with ReLU between them."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(widths))

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (n, classes) of inputs (n, *input_shape)."""
        values = inputs.flatten(1)
        for layer in self.layers[:-1]:
            values = torch.relu(layer(values))
        result: Tensor = self.layers[-1](values)
        return result


_FEATURE_ORDER = 2


class SplitLinear(nn.Module):
    """z = a . shared + b . personal (+ bias), where a sample's features are divided into a and b.

    Args:
        shared, personal: numbers of features in a and in b; if b has none, there is no tensor ``personal``.
        bias: whether there is a constant.
        shuffle_features: whether features are put in a fixed random order first.
        unit_norm: whether every sample is scaled to Euclidean norm 1.
    """

    order: Tensor

    def __init__(
        self, shared: int, personal: int, *, bias: bool, shuffle_features: bool, unit_norm: bool
    ) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.zeros(shared))
        if personal:
            self.personal = nn.Parameter(torch.zeros(personal))
        if bias:
            self.bias = nn.Parameter(torch.zeros(1))
        order = np.arange(shared + personal)
        if shuffle_features:
            order = np.argsort(Stream(0, Purpose.DATASET, _FEATURE_ORDER).hashes(order))
        self.register_buffer("order", torch.from_numpy(order), persistent=False)
        self.unit_norm = unit_norm
        self._shuffles = shuffle_features

    def arranged(self, inputs: Tensor) -> Tensor:
        """The inputs as rows (n, features), shared ones first, of norm 1 if ``unit_norm`` is set."""
        values = inputs.flatten(1)
        if self._shuffles:
            values = values[:, self.order]
        if self.unit_norm:
            values = values / values.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return values

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs z (n, 1) of inputs (n, *input_shape)."""
        values = self.arranged(inputs)
        weights = [getattr(self, name) for name in ("shared", "personal") if hasattr(self, name)]
        outputs = values @ torch.cat(weights).unsqueeze(1)
        if hasattr(self, "bias"):
            outputs = outputs + self.bias
        return outputs

    def draw(self, generator: Generator) -> None:
        """All parameters start at zero; the generator is not used."""
        for parameter in self.parameters(recurse=False):
            nn.init.zeros_(parameter)


Norm = Callable[[int], nn.Module]
"""Creates the normalization of a number of channels."""


class Block(nn.Module):
    """Basic block: two 3 x 3 convolutions with a shortcut around them (He et al. 2016).

    Attributes:
        projection: 1 x 1 convolution with norm on a shortcut that changes the shape; None if the shortcut has no
            parameters (every second pixel, new channels zero).
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, projected: bool, norm: Norm, before: int = 0
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.stride = stride
        # Of a part of a wider network, channels beyond its own are cut.
        self.before = min(before, outputs)
        self.passed = min(inputs, outputs - self.before)
        self.after = outputs - self.before - self.passed
        self.projection: nn.Module | None = None
        if projected and (stride != 1 or inputs != outputs):
            self.projection = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the block."""
        values = torch.relu(self.norm1(self.conv1(inputs)))
        values = self.norm2(self.conv2(values))
        if self.projection is not None:
            shortcut = self.projection(inputs)
        elif self.stride != 1 or self.before or self.after:
            strided = inputs[:, : self.passed, :: self.stride, :: self.stride]
            shortcut = functional.pad(strided, (0, 0, 0, 0, self.before, self.after))
        else:
            shortcut = inputs
        return torch.relu(values + shortcut)


class ResidualNetwork(nn.Module):
    """A 3 x 3 stem, stages of basic blocks, the mean over all pixels, and a linear layer.

    Args:
        depth: channels of the images.
        widths: channels of the stages.
        blocks: basic blocks in each stage.
        projected: whether shortcuts that change the shape have parameters.
        classes: outputs.
        groups: groups of group norm; None for batch norm.
        whole: channels of the network whose leading channels these are, if it is a part of one.
    """

    def __init__(
        self,
        depth: int,
        widths: tuple[int, ...],
        blocks: int,
        projected: bool,
        classes: int,
        groups: int | None,
        whole: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        whole = whole or widths
        norm = _batch_norm if groups is None else partial(nn.GroupNorm, groups)
        self.stem = nn.Conv2d(depth, widths[0], 3, padding=1, bias=False)
        self.stem_norm = norm(widths[0])
        layers: list[nn.Module] = []
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                before = (whole[stage] - whole[stage - 1]) // 2 if stage and not block else 0
                layers.append(Block(inputs, width, stride, projected, norm, before))
                inputs = width
        self.stages = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, classes)
        self.blocks = blocks

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (n, classes) of images (n, depth, height, width)."""
        values = torch.relu(self.stem_norm(self.stem(inputs)))
        values = self.stages(values).mean(dim=(2, 3))
        result: Tensor = self.classifier(values)
        return result


def _batch_norm(channels: int) -> nn.Module:
    norm = nn.BatchNorm2d(channels)
    # Only cumulative averages use the batch count; without it all state is floating-point and can be averaged.
    norm.register_buffer("num_batches_tracked", None)
    return norm


class LstmLayer(nn.Module):
    """One LSTM layer over a whole sequence; gates in the order input, forget, cell, output (torch.nn.LSTM, one bias).

    Written in plain tensor operations, so that it can be stacked over clients and its operations counted.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input_weight = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.hidden_weight = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))

    def forward(self, inputs: Tensor) -> Tensor:
        """Hidden states (n, length, hidden) of inputs (n, length, inputs), starting from zero."""
        projected = inputs @ self.input_weight.T + self.bias
        state = projected.new_zeros(inputs.shape[0], self.hidden)
        cell = state
        states = []
        for position in range(inputs.shape[1]):
            gates = projected[:, position] + state @ self.hidden_weight.T
            entry, forget, candidate, output = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(candidate)
            state = torch.sigmoid(output) * torch.tanh(cell)
            states.append(state)
        return torch.stack(states, dim=1)

    def draw(self, generator: Generator) -> None:
        """Uniform within 1 / sqrt(hidden), as torch.nn.LSTM."""
        bound = 1 / math.sqrt(self.hidden)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound, generator=generator)


class CharacterLstm(nn.Module):
    """Embedding, LSTM layers, and a linear layer on the last hidden state."""

    def __init__(self, characters: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.layers = nn.Sequential(
            *(LstmLayer(hidden if layer else embedding, hidden) for layer in range(layers))
        )
        self.classifier = nn.Linear(hidden, characters)

    def forward(self, codes: Tensor) -> Tensor:
        """Outputs (n, characters) of codes (n, length)."""
        states = self.layers(self.embedding(codes))
        result: Tensor = self.classifier(states[:, -1])
        return result


class AttentionBlock(nn.Module):
    """Pre-norm transformer block: self-attention over all positions, then a two-layer network four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (n, length, width) of inputs of the same shape."""
        samples, length, width = inputs.shape
        heads = self.project(self.norm1(inputs)).reshape(samples, length, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        mixed = (torch.softmax(scores, dim=-1) @ value).transpose(1, 2)
        values = inputs + self.merge(mixed.reshape(samples, length, width))
        result: Tensor = values + self.narrow(nn.functional.gelu(self.widen(self.norm2(values))))
        return result


class CharacterTransformer(nn.Module):
    """Embeddings of characters and positions, blocks, and a linear layer on the last position.

    The whole window precedes the character to be predicted, so attention needs no mask.
    """

    def __init__(self, characters: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(AttentionBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, characters)

    def forward(self, codes: Tensor) -> Tensor:
        """Outputs (n, characters) of codes (n, length)."""
        values = self.embedding(codes) + self.positions.weight
        result: Tensor = self.classifier(self.norm(self.blocks(values)[:, -1]))
        return result


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
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(features, classes)

    def forward(self, values: Tensor) -> Tensor:
        result: Tensor = self.classifier(values.flatten(2).mean(2) if values.ndim > 2 else values)
        return result


def _taken_apart(module: nn.Module) -> tuple[list[nn.Module], nn.Module]:
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
    if isinstance(outputs, Tensor):
        raise UserError(
            "with server.submodels: depth, a model returns a list with the outputs of its exits, and this one returns "
            f"one tensor {tuple(outputs.shape)}",
            where="task.model",
            hint="return a list, the last item being the output of the whole model; or use heterofl, fedrolex or fjord",
        )
    stacked = torch.stack(list(outputs), 1)
    if training:
        return stacked
    return torch.logsumexp(functional.log_softmax(stacked, 2), 1) - math.log(len(outputs))


def initialize(module: nn.Module, generator: Generator) -> None:
    """Redraw all parameters by torch's standard rule of each layer, from ``generator`` alone.

    A module may have a method ``draw(generator)`` for its own parameters.

    Raises:
        TypeError: there is no rule for a layer with parameters.
    """
    for layer in module.modules():
        parameters = dict(layer.named_parameters(recurse=False))
        if hasattr(layer, "draw"):
            layer.draw(generator)  # type: ignore[operator]
        elif isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.weight[0].numel())
                init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif isinstance(layer, nn.Embedding):
            init.normal_(layer.weight, generator=generator)
        elif isinstance(layer, nn.GroupNorm | nn.LayerNorm | nn.BatchNorm1d | nn.BatchNorm2d):
            state = {**parameters, **dict(layer.named_buffers(recurse=False))}
            for name, value in state.items():
                value.fill_(1.0 if name in ("weight", "running_var") else 0.0)
        elif parameters:
            raise TypeError(f"no rule to initialize {type(layer).__name__}")


def initialize_for_relu(module: nn.Module, generator: Generator) -> None:
    """As :func:`initialize`, but with He's initialization (2015) in all linear and convolutional layers but the last.

    Their weights are normal with variance 2 / (inputs of a unit) and their biases zero. A network of several such
    layers learns immediately; with torch's standard rule it can stay on a plateau for hundreds of steps.
    """
    initialize(module, generator)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers[:-1]:
        init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        if layer.bias is not None:
            init.zeros_(layer.bias)
