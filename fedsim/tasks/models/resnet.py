"""Residual networks for small images: ResNet-18 and ResNet-20."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from fedsim.components import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent, NamedShapes, Outline, linear, norm

if TYPE_CHECKING:
    from torch import Generator, nn


class ResNetParameters(Parameters):
    """Parameters of the residual networks."""

    norm: Literal["group", "batch"] = "group"
    """Normalization: group norm, or batch norm, whose running means and variances are part of the model that
    clients send and the server averages."""
    groups: int = Field(default=2, ge=1)
    """Groups of group norm; must divide the width of every stage."""


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
        from fedsim.tasks.modules.residual import ResidualNetwork

        depth = self._depth(dataset)
        return ResidualNetwork(
            depth, self.widths, self.blocks, self.projected, dataset.classes, self.params
        )

    def outline(self, dataset: Dataset) -> Outline:
        """Stem, blocks and the last layer; with batch norm also the running means and variances."""
        width = self.widths[0]
        tensors: NamedShapes = (
            ("stem.weight", (width, self._depth(dataset), 3, 3)),
            *norm("stem_norm", width),
        )
        norms = [("stem_norm", width)]
        inputs, number = width, 0
        for stage, width in enumerate(self.widths):
            for block in range(self.blocks):
                name = f"stages.{number}"
                layers = [("conv1", "norm1", inputs, 3), ("conv2", "norm2", width, 3)]
                if self.projected and ((stage > 0 and block == 0) or inputs != width):
                    layers.append(("projection.0", "projection.1", inputs, 1))
                for conv, scale, channels, kernel in layers:
                    tensors += (
                        (f"{name}.{conv}.weight", (width, channels, kernel, kernel)),
                        *norm(f"{name}.{scale}", width),
                    )
                    norms.append((f"{name}.{scale}", width))
                inputs, number = width, number + 1
        tensors += linear("classifier", inputs, dataset.classes)
        if self.params.norm == "group":
            return Outline(tensors)
        buffers = tuple(
            (f"{name}.{statistic}", (channels,))
            for name, channels in norms
            for statistic in ("running_mean", "running_var")
        )
        return Outline(tensors, buffers, batch_statistics=True)

    def _depth(self, dataset: Dataset) -> int:
        """Channels of the images of a dataset that the model fits."""
        depth, _, _ = self.image_shape(dataset, 2 ** (len(self.widths) - 1))
        if self.params.norm == "group" and self.widths[0] % self.params.groups:
            raise self.misfit(
                f"{self.params.groups} groups do not divide {self.widths[0]} channels", dataset
            )
        return depth

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Kaiming normal by output size in convolutions, as He et al. 2015; torch's standard rule elsewhere."""
        from torch import nn
        from torch.nn import init

        super().initialize(module, generator)
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
