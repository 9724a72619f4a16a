"""Residual networks for small images: ResNet-18 and ResNet-20."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional, init

from fedsim.components import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent, initialise


class ResNetParameters(Parameters):
    """Parameters of the residual networks."""

    norm: Literal["group", "batch"] = "group"
    """Normalisation: group norm, or batch norm, whose running means and variances are part of the model that
    clients send and the server averages."""
    groups: int = Field(default=2, ge=1)
    """Groups of group norm; must divide the width of every stage."""


class Block(nn.Module):
    """Basic block: two 3 x 3 convolutions with a shortcut around them (He et al. 2016).

    Attributes:
        projection: 1 x 1 convolution with norm on the shortcut where the shape changes; None keeps it free
            of parameters (every second pixel, new channels zero).
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, projected: bool, params: ResNetParameters
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(outputs, params)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _norm(outputs, params)
        self.stride = stride
        self.new_channels = outputs - inputs
        self.projection: nn.Module | None = None
        if projected and (stride != 1 or inputs != outputs):
            self.projection = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), _norm(outputs, params)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the block."""
        values = torch.relu(self.norm1(self.conv1(inputs)))
        values = self.norm2(self.conv2(values))
        if self.projection is not None:
            shortcut = self.projection(inputs)
        elif self.stride != 1 or self.new_channels:
            before = self.new_channels // 2
            strided = inputs[:, :, :: self.stride, :: self.stride]
            shortcut = functional.pad(strided, (0, 0, 0, 0, before, self.new_channels - before))
        else:
            shortcut = inputs
        return torch.relu(values + shortcut)


class ResidualNetwork(nn.Module):
    """A 3 x 3 stem, stages of basic blocks, the mean over all pixels, and a linear layer.

    Attributes:
        stem, stem_norm: the first convolution and its norm.
        stages: the blocks, stage after stage.
        classifier: the last layer.
    """

    def __init__(
        self,
        depth: int,
        widths: tuple[int, ...],
        blocks: int,
        projected: bool,
        classes: int,
        params: ResNetParameters,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(depth, widths[0], 3, padding=1, bias=False)
        self.stem_norm = _norm(widths[0], params)
        layers: list[nn.Module] = []
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Block(inputs, width, stride, projected, params))
                inputs = width
        self.stages = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (n, classes) of images (n, depth, height, width)."""
        values = torch.relu(self.stem_norm(self.stem(inputs)))
        values = self.stages(values).mean(dim=(2, 3))
        result: Tensor = self.classifier(values)
        return result


def _norm(channels: int, params: ResNetParameters) -> nn.Module:
    if params.norm == "group":
        return nn.GroupNorm(params.groups, channels)
    norm = nn.BatchNorm2d(channels)
    # The count of batches is used by cumulative averages only; without it all state is floating-point and
    # can be averaged.
    norm.register_buffer("num_batches_tracked", None)
    return norm


class _ResNet(ModelComponent):
    """What both networks share.

    Attributes:
        widths: channels of the stages.
        blocks: basic blocks in each stage.
        projected: whether shortcuts that change the shape have parameters.
    """

    Params = ResNetParameters
    params: ResNetParameters
    widths: ClassVar[tuple[int, ...]]
    blocks: ClassVar[int]
    projected: ClassVar[bool]

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, _, _ = self.image_shape(dataset, 2 ** (len(self.widths) - 1))
        if self.params.norm == "group" and self.widths[0] % self.params.groups:
            raise self.misfit(
                f"{self.params.groups} groups do not divide {self.widths[0]} channels", dataset
            )
        return ResidualNetwork(
            depth, self.widths, self.blocks, self.projected, dataset.classes, self.params
        )

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Kaiming normal by output size in convolutions, as He et al. 2015; torch's standard rule elsewhere."""
        initialise(module, generator)
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                init.kaiming_normal_(
                    layer.weight, mode="fan_out", nonlinearity="relu", generator=generator
                )


class ResNet18(_ResNet):
    """ResNet-18 for small images: 3 x 3 stem of 64, stages of 64, 128, 256 and 512, 1 x 1 shortcuts where
    the width changes.

    11,173,962 parameters on CIFAR-10 (FedCompass, Li et al. 2024, tables 10 and 11, with batch norm). Group
    norm with two groups is the usual choice in federated learning (Reddi et al., Adaptive Federated
    Optimization, ICLR 2021).
    """

    name: ClassVar[str] = "resnet18"
    widths: ClassVar[tuple[int, ...]] = (64, 128, 256, 512)
    blocks: ClassVar[int] = 2
    projected: ClassVar[bool] = True


class ResNet20(_ResNet):
    """ResNet-20 of He et al. 2016, section 4.2: stages of 16, 32 and 64 with three blocks each, shortcuts
    without parameters.

    269,722 parameters on CIFAR-10.
    """

    name: ClassVar[str] = "resnet20"
    widths: ClassVar[tuple[int, ...]] = (16, 32, 64)
    blocks: ClassVar[int] = 3
    projected: ClassVar[bool] = False
