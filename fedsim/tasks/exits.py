"""Models with early exits, from models without."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsim.parts.component import Parameters, is_bundled
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.losses import Loss
from fedsim.tasks.model import ModelComponent

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn


@dataclass(frozen=True, slots=True)
class ExitsLoss(Loss):
    """The cross-entropy of all exits, which also learn from one another.

    Attributes:
        distillation: weight of the distillation: for each exit, the mean over the others of the Kullback-Leibler
            divergence of its probabilities from theirs, which count as constants.
    """

    distillation: float = 1.0

    def per_sample(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if outputs.ndim == 2:
            return Loss.per_sample(self, outputs, labels)
        from torch.nn import functional

        logs = functional.log_softmax(outputs, 2)
        exits = logs.shape[1]
        loss = -logs.gather(2, labels.view(-1, 1, 1).expand(-1, exits, 1)).sum((1, 2))
        if exits > 1 and self.distillation:
            teachers = logs.detach()
            # KL(p_j || p_i), teacher j, exit i; zero for j = i.
            divergence = (
                teachers.exp().unsqueeze(1) * (teachers.unsqueeze(1) - logs.unsqueeze(2))
            ).sum((1, 2, 3))
            loss = loss + self.distillation / (exits - 1) * divergence
        return loss


class ExitsModel(ModelComponent):
    """A model with an exit after each of its blocks; a part of it has the first ones.

    Args:
        model: one of fedsim's, or a user's module that returns the outputs of its exits in a list, the part of a
            ``model_rate`` those of the first exits.
        distillation: see :class:`ExitsLoss`.
    """

    def __init__(self, model: ModelComponent, distillation: float) -> None:
        super().__init__(Parameters())
        self.name = model.name  # type: ignore[misc]
        self.takes_rate = model.takes_rate
        self._model = model
        self._distillation = distillation

    def at(self, rate: float) -> ExitsModel:
        part = copy.copy(self)
        part.rate = rate
        if not self.is_bundled:
            part._model = self._model.at(rate)
        return part

    @property
    def is_bundled(self) -> bool:
        return self._model.is_bundled and is_bundled(type(self._model))

    def build(self, dataset: Dataset) -> nn.Module:
        import torch

        from fedsim.tasks.modules.networks import EarlyExits, join_exits

        module = self._model.build(dataset)
        if self.is_bundled:
            exits = EarlyExits(module, torch.zeros(1, *dataset.input_shape), dataset.classes)
            exits.keep(max(1, math.floor(len(exits.blocks) * self.rate + 1e-9)))
            module = exits
        join_exits(module)
        return module

    def loss(self, dataset: Dataset) -> Loss:
        loss = self._model.loss(dataset)
        if loss.kind != "cross_entropy":
            raise self.misfit("early exits need classes and cross-entropy", dataset)
        return ExitsLoss(distillation=self._distillation)

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        self._model.initialize(module, generator)
