"""The rules that divide a model: by width (HeteroFL, FedRolex, FjORD), by depth, and by the rank of adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.learning.submodels import Rate, Submodels, SubmodelsParams
from fedsim.parts.parameters import Parameters
from fedsim.tasks.exits import ExitsModel
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import partition_table
from fedsim.vocabulary.arrays import Ints

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsim.tasks.base import Task
    from fedsim.tasks.model import ModelComponent


class Whole(Submodels):
    """Every client trains the whole model."""

    name = "whole"
    Params = Parameters

    def check(self, task: Task) -> None:
        """Every task will do."""


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

    class Params(SubmodelsParams):
        scaler: bool = True
        """Whether a part divides the outputs of its hidden layers by its rate in training, before normalization."""
        masked_loss: bool = True
        """Whether a client sets the outputs of classes of which it has no samples to zero in training. Its update then
        does not count for the weights of these outputs."""

    static_statistics = True

    def part(self, task: SupervisedTask, rate: float) -> SupervisedTask:
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

    class Params(HeteroFl.Params):
        reaches_all: ClassVar[bool] = False

    moves = True

    def window(self, full: int, count: int, round: int) -> Ints:
        return np.sort((round + np.arange(count)) % full)


class Fjord(Submodels):
    """The first units of every hidden layer, as many as each local step draws (ordered dropout, FjORD).

    A client receives and sends the part of its limit. Each of its local steps trains the first p K (rounded up) of the
    K units of every hidden layer, with p drawn uniformly from the rates up to the limit. Each entry of the model moves
    by the mean over the clients whose limit includes it. A local step takes the mean time of the widths that it may
    draw. Running statistics of batch normalization are those of HeteroFL; distillation from the largest to the drawn
    width, an option of the paper, is not included.
    """

    name = "fjord"
    paper = (
        "Horvath et al., FjORD: Fair and Accurate Federated Learning under Heterogeneous Targets with Ordered Dropout, "
        "NeurIPS 2021, Algorithm 1 and equation 1"
    )

    class Params(SubmodelsParams):
        rates: tuple[Rate, ...] = Field(default=(1.0, 0.8, 0.6, 0.4, 0.2), min_length=1)
        """Widths p of which a step draws one; the largest first. A client's part is its largest."""

    static_statistics = True
    nested = True


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

    class Params(SubmodelsParams):
        rates: tuple[Rate, ...] = Field(default=(1.0, 0.75, 0.5, 0.25), min_length=1)
        """Share of the blocks of each part, rounded down to whole blocks but at least one; the largest first."""
        distillation: float = Field(default=1.0, ge=0)
        """Weight of what the exits learn from one another; 0 for the cross-entropy of all exits alone."""

    def adapted(self, model: ModelComponent) -> ModelComponent:
        return ExitsModel(model, self.params.distillation) if model.takes_rate else model


class Ranks(Submodels):
    """Adapters of lower rank: the first rows of every A and the first columns of every B.

    The model is a function or module of yours that takes ``model_rate`` and multiplies the rank by it. What a server
    makes of unequal ranks depends on the method: ``hetlora``, ``flexlora`` and ``flora`` follow their papers, and
    others average each entry over the clients that hold it.
    """

    name = "ranks"
    paper = (
        "Cho, Liu, Xu, Fahrezi and Joshi, Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, "
        "EMNLP 2024: a rank for each device, by truncation"
    )

    def part(self, task: SupervisedTask, rate: float) -> SupervisedTask:
        """The task with adapters of lower rank, whose products have the same factor."""
        part = super().part(task, rate)
        for mine, whole in zip(part.layout.adapters, task.layout.adapters, strict=True):
            if mine.scaling != whole.scaling:
                raise UserError(
                    f"the factor of the adapter '{mine.a}' is {mine.scaling:g} at rate {rate:g}, but "
                    f"{whole.scaling:g} in the whole model",
                    where="task.model",
                    hint="make it the same for all ranks, such as lora_alpha=2 * rank",
                )
        return part
