"""The convolutional networks of the reproduced papers, layer by layer."""

from __future__ import annotations

from typing import ClassVar

from torch import Generator, nn

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent, initialise_for_relu


class FedCompassCnn(ModelComponent):
    """FedCompass's network for MNIST (Li et al., ICLR 2024, table 8).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear; no padding.
    582,026 parameters on MNIST.
    """

    name: ClassVar[str] = "fedcompass_cnn"

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 16)
        rows, columns = ((side // 2 - 6) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(depth, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * rows * columns, 512),
            nn.ReLU(),
            nn.Linear(512, dataset.classes),
        )


class FedSumMnistCnn(ModelComponent):
    """FedSUM's network for MNIST (main set-up, table of models).

    conv 3x3 (10) - ReLU - pool 2 - conv 3x3 (20) - dropout 0.2 - ReLU - pool 2 - linear 50 - ReLU - dropout
    0.2 - linear; padding 1. 51,480 parameters on MNIST.
    """

    name: ClassVar[str] = "fedsum_mnist_cnn"

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 4)
        return nn.Sequential(
            nn.Conv2d(depth, 10, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(10, 20, 3, padding=1),
            nn.Dropout(0.2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(20 * (height // 4) * (width // 4), 50),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(50, dataset.classes),
        )


class FedSumSvhnCnn(ModelComponent):
    """FedSUM's network for SVHN (main set-up, table of models).

    conv 3x3 (32) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - linear 128 - ReLU - linear; padding 1.
    273,706 parameters on SVHN.
    """

    name: ClassVar[str] = "fedsum_svhn_cnn"

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 4)
        return nn.Sequential(
            *_fedsum_features(depth),
            nn.Linear(32 * (height // 4) * (width // 4), 128),
            nn.ReLU(),
            nn.Linear(128, dataset.classes),
        )


class FedSumCifarCnn(ModelComponent):
    """FedSUM's network for CIFAR-10 (main set-up, table of models).

    conv 3x3 (32) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - linear 256 - ReLU - linear 64 - ReLU -
    linear; padding 1. 551,786 parameters on CIFAR-10.
    """

    name: ClassVar[str] = "fedsum_cifar_cnn"

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 4)
        return nn.Sequential(
            *_fedsum_features(depth),
            nn.Linear(32 * (height // 4) * (width // 4), 256),
            nn.ReLU(),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, dataset.classes),
        )


def _fedsum_features(depth: int) -> list[nn.Module]:
    return [
        nn.Conv2d(depth, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]


class WangJiFashionCnn(ModelComponent):
    """Wang and Ji's network for Fashion-MNIST (A Unified Analysis of Federated Learning ..., 2022, table D.2).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (32) - ReLU - pool 2 - linear 128 - ReLU - linear; padding 2.
    228,586 parameters on Fashion-MNIST.
    """

    name: ClassVar[str] = "wangji_fashion_cnn"

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 4)
        return nn.Sequential(
            *_wangji_features(depth, 32),
            nn.Linear(32 * (height // 4) * (width // 4), 128),
            nn.ReLU(),
            nn.Linear(128, dataset.classes),
        )

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Kaiming normal weights and zero biases before ReLU; torch's standard rule in the last layer."""
        initialise_for_relu(module, generator)


class WangJiCifarCnn(ModelComponent):
    """Wang and Ji's network for CIFAR-10 (A Unified Analysis of Federated Learning ..., 2022, table D.2).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear 128 - ReLU -
    linear; padding 2. 2,218,314 parameters on CIFAR-10.
    """

    name: ClassVar[str] = "wangji_cifar_cnn"

    def build(self, dataset: Dataset) -> nn.Module:
        """The layers for this dataset's images."""
        depth, height, width = self.image_shape(dataset, 4)
        return nn.Sequential(
            *_wangji_features(depth, 64),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
            nn.Linear(512, 128),
            nn.ReLU(),
            nn.Linear(128, dataset.classes),
        )

    def initialise(self, module: nn.Module, generator: Generator) -> None:
        """Kaiming normal weights and zero biases before ReLU; torch's standard rule in the last layer."""
        initialise_for_relu(module, generator)


def _wangji_features(depth: int, second: int) -> list[nn.Module]:
    return [
        nn.Conv2d(depth, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, second, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
