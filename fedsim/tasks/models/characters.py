"""Models that guess the next character: a recurrent network and a small transformer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import init

from fedsim.components import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent


class LstmLayer(nn.Module):
    """One LSTM layer over a whole sequence, gates in the order input, forget, cell, output (as
    torch.nn.LSTM, one bias).

    Written in plain tensor operations, so that it can be stacked over clients and its operations be counted.
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
            entry, forget, new, output = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(new)
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


class CharLstmParameters(Parameters):
    """Parameters of the character LSTM."""

    embedding: int = Field(default=8, ge=1)
    """Numbers that stand for a character."""
    hidden: int = Field(default=256, ge=1)
    """Units of each layer."""
    layers: int = Field(default=2, ge=1)
    """LSTM layers."""


class CharLstm(ModelComponent):
    """Next character by two LSTM layers of 256 units on 8-dimensional embeddings (McMahan et al. 2017; LEAF)."""

    name: ClassVar[str] = "char_lstm"
    Params = CharLstmParameters
    params: CharLstmParameters

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's characters."""
        _need_characters(self, dataset)
        params = self.params
        return CharacterLstm(dataset.classes, params.embedding, params.hidden, params.layers)


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

    The whole window lies before the character to be guessed, so positions need no mask.
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


class CharTransformerParameters(Parameters):
    """Parameters of the character transformer."""

    width: int = Field(default=64, ge=1)
    """Numbers that stand for a character at a position."""
    heads: int = Field(default=4, ge=1)
    """Attention heads; must divide the width."""
    layers: int = Field(default=2, ge=1)
    """Transformer blocks."""


class CharTransformer(ModelComponent):
    """Next character by a small pre-norm transformer with learned positions."""

    name: ClassVar[str] = "char_transformer"
    Params = CharTransformerParameters
    params: CharTransformerParameters

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's characters."""
        _need_characters(self, dataset)
        params = self.params
        if params.width % params.heads:
            raise self.misfit(f"{params.heads} heads do not divide width {params.width}", dataset)
        return CharacterTransformer(
            dataset.classes, dataset.input_shape[0], params.width, params.heads, params.layers
        )

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Torch's standard rules, with embeddings scaled down to 0.02."""
        super().initialise(module, generator)
        for layer in module.modules():
            if isinstance(layer, nn.Embedding):
                layer.weight.mul_(0.02)


def _need_characters(model: ModelComponent, dataset: Dataset) -> None:
    if dataset.kind != "next_character":
        raise model.misfit(
            "it guesses the next character, samples are not sequences of characters",
            dataset,
            "use the dataset shakespeare, or another model",
        )
