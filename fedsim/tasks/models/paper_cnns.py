"""The convolutional networks of the reproduced papers."""

from __future__ import annotations

from fedsim.tasks.sequential import Conv, Dropout, Linear, SequentialModel


class FedCompassCnn(SequentialModel):
    """FedCompass's network for MNIST (Li et al., ICLR 2024, table 8).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear; no padding.
    582,026 parameters on MNIST.
    """

    name = "fedcompass_cnn"
    least = 16
    hidden_layers = (
        *(Conv(32, 5), "pool", "relu"),
        *(Conv(64, 5), "pool", "relu"),
        *("flatten", Linear(512), "relu"),
    )


class FedSumMnistCnn(SequentialModel):
    """FedSUM's network for MNIST (main set-up, table of models).

    conv 3x3 (10) - ReLU - pool 2 - conv 3x3 (20) - dropout 0.2 - ReLU - pool 2 - linear 50 - ReLU - dropout
    0.2 - linear; padding 1. 51,480 parameters on MNIST.
    """

    name = "fedsum_mnist_cnn"
    hidden_layers = (
        *(Conv(10, 3, padding=1), "pool", "relu"),
        *(Conv(20, 3, padding=1), Dropout(0.2), "pool", "relu"),
        *("flatten", Linear(50), "relu", Dropout(0.2)),
    )


class FedSumSvhnCnn(SequentialModel):
    """FedSUM's network for SVHN (main set-up, table of models).

    conv 3x3 (32) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - linear 128 - ReLU - linear; padding 1.
    273,706 parameters on SVHN.
    """

    name = "fedsum_svhn_cnn"
    hidden_layers = (
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *("flatten", Linear(128), "relu"),
    )


class FedSumCifarCnn(SequentialModel):
    """FedSUM's network for CIFAR-10 (main set-up, table of models).

    conv 3x3 (32) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - linear 256 - ReLU - linear 64 - ReLU -
    linear; padding 1. 551,786 parameters on CIFAR-10.
    """

    name = "fedsum_cifar_cnn"
    hidden_layers = (
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *(Conv(32, 3, padding=1), "pool", "relu"),
        *("flatten", Linear(256), "relu", Linear(64), "relu"),
    )


class WangJiFashionCnn(SequentialModel):
    """Wang and Ji's network for Fashion-MNIST (A Unified Analysis of Federated Learning ..., 2022, table D.2).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (32) - ReLU - pool 2 - linear 128 - ReLU - linear; padding 2.
    228,586 parameters on Fashion-MNIST.
    """

    name = "wangji_fashion_cnn"
    for_relu = True
    hidden_layers = (
        *(Conv(32, 5, padding=2), "pool", "relu"),
        *(Conv(32, 5, padding=2), "pool", "relu"),
        *("flatten", Linear(128), "relu"),
    )


class WangJiCifarCnn(SequentialModel):
    """Wang and Ji's network for CIFAR-10 (A Unified Analysis of Federated Learning ..., 2022, table D.2).

    conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear 128 - ReLU -
    linear; padding 2. 2,218,314 parameters on CIFAR-10.
    """

    name = "wangji_cifar_cnn"
    for_relu = True
    hidden_layers = (
        *(Conv(32, 5, padding=2), "pool", "relu"),
        *(Conv(64, 5, padding=2), "pool", "relu"),
        *("flatten", Linear(512), "relu", Linear(128), "relu"),
    )
