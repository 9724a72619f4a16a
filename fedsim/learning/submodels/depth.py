"""The first blocks of a model with early exits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fedsim.learning.submodels.base import Rate, Submodels, SubmodelsParams
from fedsim.tasks.exits import ExitsModel

if TYPE_CHECKING:
    from fedsim.tasks.model import ModelComponent


class DepthParams(SubmodelsParams):
    """Parameters of parts by depth."""

    rates: tuple[Rate, ...] = Field(default=(1.0, 0.75, 0.5, 0.25), min_length=1)
    """Share of the blocks of each part, rounded down to whole blocks but at least one; the largest first."""
    distillation: float = Field(default=1.0, ge=0)
    """Weight of what the exits learn from one another; 0 for the cross-entropy of all exits alone."""


class Depth(Submodels):
    """The first blocks of the model, each with a classifier (early exit), which learn from one another (DepthFL).

    The model gets an exit after every block: after every hidden layer of ``mlp``, every convolution and hidden layer of
    the convolutional networks, and every stage of the ResNets. An exit is the mean over all pixels and a linear layer;
    the last one is that of the model. A client minimizes the sum over its exits of the cross-entropy and of the mean
    divergence from its other exits. The model predicts by the mean of the probabilities of all exits. The paper's
    bottleneck layers in exits and ramp-up of the distillation are not included.
    """

    name = "depth"
    paper = (
        "Kim et al., DepthFL: Depthwise Federated Learning for Heterogeneous Clients, ICLR 2023, section 3 and "
        "Algorithm 1"
    )
    Params = DepthParams

    def adapted(self, model: ModelComponent) -> ModelComponent:
        """The model with exits."""
        return ExitsModel(model, self.params.distillation) if model.takes_rate else model
