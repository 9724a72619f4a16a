"""Parts of smaller width: HeteroFL, and FedRolex, whose parts roll over the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedsim.learning.submodels.base import IntArray, Submodels, SubmodelsParams
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import partition_table

if TYPE_CHECKING:
    from torch import Tensor, nn


class WidthParams(SubmodelsParams):
    """Parameters of HeteroFL."""

    scaler: bool = True
    """Whether a part divides the outputs of its hidden layers by its rate in training, before normalization."""
    masked_loss: bool = True
    """Whether a client sets the outputs of classes of which it has no samples to zero in training. Its update then does
    not count for the weights of these outputs."""


class HeteroFl(Submodels):
    """The first units of every hidden layer.

    A part of rate r has the first r K (rounded up) of the K units, or channels, of each hidden layer: the leading block
    of each weight matrix. Each entry of the model moves by the mean over the clients whose parts have it. Parts do not
    track running statistics of batch normalization; they are computed from all training samples, in one pass, before
    an evaluation (static batch normalization), which takes no simulated time.
    """

    name = "heterofl"
    paper = (
        "Diao, Ding and Tarokh, HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous "
        "Clients, ICLR 2021, section 3"
    )
    Params = WidthParams
    static_statistics = True

    def part(self, task: SupervisedTask, rate: float) -> SupervisedTask:
        """The task with narrower layers, scaler and masked loss."""
        part = super().part(task, rate)
        if self.params.masked_loss and part.loss.kind == "cross_entropy":
            part.class_masks = partition_table(task.dataset, task.partition) > 0
        if self.params.scaler and rate < 1:
            _add_scalers(part, task, rate)
        part.by_hand = part.class_masks is None and (rate == 1 or not self.params.scaler)
        return part


def _add_scalers(part: SupervisedTask, whole: SupervisedTask, rate: float) -> None:
    """Divide the outputs of the layers that became narrower by the rate in training."""
    full = dict(zip(whole.layout.names, whole.layout.shapes, strict=True))
    for name, shape in zip(part.layout.names, part.layout.shapes, strict=True):
        if len(shape) > 1 and name in full and shape[0] < full[name][0]:

            def scaled(layer: nn.Module, _: object, outputs: Tensor) -> Tensor:
                return outputs / rate if layer.training else outputs

            part.module.get_submodule(name.rpartition(".")[0]).register_forward_hook(scaled)


class FedRolexParams(WidthParams):
    """Parameters of FedRolex."""

    reaches_all: ClassVar[bool] = False


class FedRolex(HeteroFl):
    """A window of the units of every hidden layer, which moves by one unit per round.

    In round j a part of rate r has the units j, j + 1, ..., modulo K, of each hidden layer of K units, so that all
    parameters are trained in turn, even if no client can hold the model: rates need not begin with 1. Otherwise as
    HeteroFL.
    """

    name = "fedrolex"
    paper = (
        "Alam et al., FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction, "
        "NeurIPS 2022, Algorithm 1"
    )
    Params = FedRolexParams
    moves = True

    def window(self, full: int, count: int, round: int) -> IntArray:
        """The units of round ``round``, ascending."""
        return np.sort((round + np.arange(count)) % full)
