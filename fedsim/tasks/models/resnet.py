"""Residual networks for small images: ResNet-18 and ResNet-20."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn


class _ResNet(ModelComponent):
    """Common part of both networks; the attributes are arguments of the module ``ResidualNetwork``."""

    class Params(Parameters):
        norm: Literal["group", "batch"] = "group"
        """Normalization: group norm, or batch norm, whose running means and variances are part of the model that
        clients send and the server averages."""
        groups: int = Field(default=2, ge=1)
        """Groups of group norm; must divide the width of every stage."""

    params: Params
    widths: ClassVar[tuple[int, ...]]
    blocks: ClassVar[int]
    projected: ClassVar[bool]

    def build(self, dataset: Dataset) -> nn.Module:
        from fedsim.tasks.modules.networks import ResidualNetwork

        depth, _, _ = self.image_shape(dataset, 2 ** (len(self.widths) - 1))
        widths = tuple(map(self.scaled, self.widths))
        groups = self.params.groups if self.params.norm == "group" else None
        for width in widths:
            if groups and width % groups:
                raise self.misfit(f"{groups} groups do not divide {width} channels", dataset)
        return ResidualNetwork(
            depth,
            widths,
            self.blocks,
            self.projected,
            dataset.classes,
            groups,
            whole=self.widths,
        )

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Kaiming normal by output size in convolutions, as in He et al. 2015; torch's standard rule elsewhere."""
        from torch.nn import Conv2d, init

        super().initialize(module, generator)
        for layer in module.modules():
            if isinstance(layer, Conv2d):
                init.kaiming_normal_(layer.weight, 0, "fan_out", "relu", generator)


class ResNet18(_ResNet):
    """ResNet-18 for small images: 3 x 3 stem of 64 channels, stages of 64, 128, 256 and 512, and 1 x 1 shortcuts if the
    width changes.

    11,173,962 parameters on CIFAR-10 (FedCompass, Li et al. 2024, tables 10 and 11, with batch norm). Group norm with
    two groups is common in federated learning (Reddi et al., Adaptive Federated Optimization, ICLR 2021).
    """

    name = "resnet18"
    takes_rate = True
    widths = (64, 128, 256, 512)
    blocks = 2
    projected = True


class ResNet20(_ResNet):
    """ResNet-20 (He et al. 2016, section 4.2): stages of 16, 32 and 64 channels with three blocks each, and shortcuts
    without parameters.

    269,722 parameters on CIFAR-10.
    """

    name = "resnet20"
    takes_rate = True
    any_units = False
    widths = (16, 32, 64)
    blocks = 3
    projected = False
