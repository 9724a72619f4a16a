"""Models: parts that build a torch module for a dataset, and how its parameters are initialised."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, nn
from torch.nn import init

from fedsim.components import Component
from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.losses import Loss

Family = Literal["linear", "mlp", "module", "quadratic"]


class ModelComponent(Component, ABC):
    """A model by name.

    Attributes:
        family: which local-training kernel may be used. ``linear`` and ``mlp`` promise: the parameters are
            weight and bias of linear layers in order, with ReLU between them, on flattened inputs, and the
            loss has no penalty.
        params: its validated parameters.
    """

    family: ClassVar[Family] = "module"

    def __init__(self, params: Any) -> None:
        self.params = params

    @abstractmethod
    def build(self, dataset: Dataset) -> nn.Module:
        """The module for inputs and labels of ``dataset``; the values of its parameters do not matter.

        Raises:
            UserError: the model cannot work on this dataset.
        """

    def loss(self, dataset: Dataset) -> Loss:
        """The loss it is trained for."""
        return Loss()

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Draw the module's initial parameters from ``generator`` alone."""
        initialise(module, generator)

    def misfit(self, message: str, dataset: Dataset, hint: str | None = None) -> UserError:
        """The error for a dataset that the model cannot work on."""
        return UserError(
            f"model {self.name} does not fit dataset {dataset.name}: {message}",
            where="task.model",
            hint=hint,
        )

    def image_shape(self, dataset: Dataset, least: int) -> tuple[int, int, int]:
        """Channels, height and width of the dataset's images.

        Raises:
            UserError: samples are not images, or height or width is below ``least``.
        """
        shape = dataset.input_shape
        if len(shape) != 3:
            raise self.misfit(
                f"it needs images (channels, height, width), samples have shape {shape}",
                dataset,
                "use an image dataset, or the model mlp",
            )
        if min(shape[1:]) < least:
            raise self.misfit(
                f"images of {shape[1]} x {shape[2]} are too small; {least} x {least} is least",
                dataset,
            )
        return shape[0], shape[1], shape[2]

    def feature_count(self, dataset: Dataset) -> int:
        """Numbers in one sample, for models of flattened inputs.

        Raises:
            UserError: samples are sequences of characters.
        """
        if dataset.kind == "next_character":
            raise self.misfit(
                "it needs numbers, samples are sequences of characters",
                dataset,
                "use char_lstm or char_transformer",
            )
        return math.prod(dataset.input_shape)


def initialise(module: nn.Module, generator: Generator) -> None:
    """Redraw all parameters by torch's standard rule of each layer, from ``generator`` alone.

    A module may have a method ``draw(generator)`` for parameters it holds itself.

    Raises:
        TypeError: a layer with parameters has no known rule.
    """
    for layer in module.modules():
        own = dict(layer.named_parameters(recurse=False))
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
            state = {**own, **dict(layer.named_buffers(recurse=False))}
            for name, value in state.items():
                value.fill_(1.0 if name in ("weight", "running_var") else 0.0)
        elif own:
            raise TypeError(f"no rule to initialise {type(layer).__name__}")


def initialise_for_relu(module: nn.Module, generator: Generator) -> None:
    """As :func:`initialise`, but all linear and convolutional layers except the last start as He et al. 2015
    derive for ReLU.

    Their weights are normal with variance 2 / (inputs of a unit) and their biases zero; a network of several
    such layers starts to learn at once, where torch's standard rule can keep it on a plateau for hundreds of steps.
    """
    initialise(module, generator)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers[:-1]:
        init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        if layer.bias is not None:
            init.zeros_(layer.bias)


@contextmanager
def isolated_torch_random(seed: int) -> Iterator[None]:
    """Inside, torch's global CPU generator starts from ``seed``; outside, it is as if nothing had happened.

    For constructors of modules, which draw from the global generator whether or not the numbers are wanted.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
