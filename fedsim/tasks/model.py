"""Models: parts that build a torch module for a dataset.

The modules themselves are in :mod:`fedsim.tasks.modules`.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fedsim.errors import UserError
from fedsim.parts.component import Component, is_bundled
from fedsim.tasks.dataset import Dataset, TargetKind
from fedsim.tasks.layout import Layout
from fedsim.tasks.losses import Loss

if TYPE_CHECKING:
    from torch import Generator, nn

Family = Literal["linear", "mlp", "module", "quadratic"]
MOST_LAYERS = 1_000


class ModelComponent(Component, ABC):
    """A model by name.

    Attributes:
        family: which local-training kernels may be used. With ``linear`` and ``mlp``, the parameters must be weight and
            bias of linear layers in order, with ReLU between them, on flattened inputs, and the loss has no penalty.
        predicts: whether the model predicts classes or a quantity only; None for both.
        takes_rate: whether :attr:`rate` makes the model smaller, so that clients can train a part of it.
        any_units: whether a part may have any units of a layer, not only the first.
        rate: size of the model as a share of the whole, such as the width of its hidden layers.
    """

    family: ClassVar[Family] = "module"
    predicts: ClassVar[TargetKind | None] = None
    takes_rate: bool = False
    any_units: bool = True
    rate: float = 1.0

    @property
    def is_bundled(self) -> bool:
        """Whether its module ships with fedsim, and so can be built without values and needs no check."""
        return is_bundled(type(self).build)

    def at(self, rate: float) -> Self:
        """The part of the model of a ``rate``."""
        part = copy.copy(self)
        part.rate = rate
        return part

    def scaled(self, width: int) -> int:
        """Width of a hidden layer of the part, rounded up."""
        return math.ceil(width * self.rate - 1e-9)

    @abstractmethod
    def build(self, dataset: Dataset) -> nn.Module:
        """The module for inputs and labels of ``dataset``; the values of its parameters do not matter."""

    def layout(self, dataset: Dataset) -> Layout:
        """The layout of :meth:`build`'s module; plain stacks of layers know theirs without importing torch."""
        import torch

        with torch.device("meta"):
            return Layout.of_module(self.build(dataset))

    def loss(self, dataset: Dataset) -> Loss:
        """The training loss: cross-entropy, or the squared error for a quantity."""
        regression = dataset.kind == "regression"
        if regression and self.predicts == "class":
            raise self.misfit("it predicts classes", dataset, "use linear_regression or mlp")
        if not regression and self.predicts == "quantity":
            hint = "use logistic_regression, or set target_kind: quantity"
            raise self.misfit("it predicts a quantity", dataset, hint)
        return Loss("squared") if regression else Loss()

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Draw the module's initial parameters from ``generator`` alone."""
        from fedsim.tasks.modules.networks import initialize

        initialize(module, generator)

    def misfit(self, message: str, dataset: Dataset, hint: str | None = None) -> UserError:
        """The error for a data set that the model does not fit."""
        return UserError(
            f"model {self.name} does not fit data set {dataset.name}: {message}",
            where="task.model",
            hint=hint,
        )

    def image_shape(self, dataset: Dataset, least: int) -> tuple[int, int, int]:
        """Channels, height and width of the data set's images."""
        shape = dataset.input_shape
        if len(shape) != 3:
            message = f"it needs images (channels, height, width), but samples have shape {shape}"
            raise self.misfit(message, dataset, "use an image data set, or the model mlp")
        if min(shape[1:]) < least:
            message = (
                f"images of {shape[1]} x {shape[2]} are too small; the minimum is {least} x {least}"
            )
            raise self.misfit(message, dataset)
        return shape[0], shape[1], shape[2]

    def feature_count(self, dataset: Dataset) -> int:
        """Number of values in one sample, for models of flattened inputs."""
        if dataset.tokens:
            hint = "use char_lstm or char_transformer for characters, or your own module"
            raise self.misfit(
                "it needs numbers, but samples are sequences of tokens", dataset, hint
            )
        return math.prod(dataset.input_shape)
