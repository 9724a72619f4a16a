"""The common work in torch: the models, and local training for peers that leave it to their users."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from work import BATCH, CORES, RATE, FloatArray, IntArray, Work, read_arrays

torch.set_num_threads(CORES)


class ChannelsLast(nn.Module):
    """Gives images of one channel the strides of channels-last order, in which convolution and pooling are faster."""

    def forward(self, images: Tensor) -> Tensor:
        """The same images (n, 1, h, w); with one channel, both orders store the same."""
        height, width = images.shape[2:]
        return images.as_strided(images.shape, (height * width, 1, width, 1))


def build(model: str) -> nn.Module:
    """The model, initialized by torch's standard rule."""
    if model == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if model == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, 10),
        )
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


@lru_cache
def build_once(model: str) -> nn.Module:
    """The model that a worker process keeps."""
    return build(model)


def parameters_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class Batches:
    """A client's mini-batches in a new order at every pass: like a DataLoader, without its cost per sample."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.drawn = 0

    def __len__(self) -> int:
        return -(-len(self.y) // BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.split(torch.randperm(len(self.y)), BATCH):
            self.drawn += 1
            yield self.x.index_select(0, rows), self.y.index_select(0, rows)


def client_batches(x: FloatArray, y: IntArray) -> list[Batches]:
    """Batches of every client, from images (clients, samples, ...) and labels (clients, samples)."""
    return [
        Batches(torch.from_numpy(own_x), torch.from_numpy(own_y))
        for own_x, own_y in zip(x, y, strict=True)
    ]


@lru_cache
def batches_of_file(data: str) -> list[Batches]:
    """The same in a worker process that has no :class:`Work`; read once."""
    return client_batches(*read_arrays(Path(data))[:2])


def steps_drawn(batches: list[Batches]) -> int:
    return sum(each.drawn for each in batches)


def train(model: nn.Module, batches: Batches) -> None:
    """One local epoch of plain SGD, in the fastest way that torch offers on a processor."""
    parameters: list[Tensor] = list(model.parameters())
    for x, y in batches:
        gradients = torch.autograd.grad(functional.cross_entropy(model(x), y), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-RATE)


@torch.no_grad()
def accuracy_of(model: nn.Module, work: Work) -> float:
    model.eval()
    outputs = model(torch.from_numpy(work.test_x))
    return float((outputs.argmax(1) == torch.from_numpy(work.test_y)).double().mean())
