"""pfl-research: its federated averaging in one process, with torch's fused optimizer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor
from torch.nn import functional
from torch_work import accuracy_of, build, parameters_of
from work import BATCH, COHORT, RATE, read_work

work = read_work()
network: Any = build(work.model)
steps = 0


def loss(x: Tensor, y: Tensor) -> Tensor:
    global steps
    steps += 1
    return functional.cross_entropy(network(x), y)


network.loss = loss
network.metrics = lambda x, y: {}


def dataset_of(client: int) -> Any:
    return PyTorchTensorDataset(
        (torch.from_numpy(work.x[client]), torch.from_numpy(work.y[client]))
    )


clients = FederatedDataset(
    # It cuts the batches once: every epoch goes through them in the same order.
    {client: dataset_of(client) for client in range(len(work.x))}.__getitem__,
    get_user_sampler("random", range(len(work.x))),
)
model = PyTorchModel(
    network,
    partial(torch.optim.SGD, fused=True),
    torch.optim.SGD(network.parameters(), lr=1.0, fused=True),
)
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=work.rounds,
        evaluation_frequency=work.rounds + 1,
        train_cohort_size=COHORT,
        val_cohort_size=0,
    ),
    SimulatedBackend(training_data=clients, val_data=None),
    model,
    NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
)
work.hand_in(
    steps=steps,
    parameters=parameters_of(network),
    accuracy=accuracy_of(network, work),
    packages=["pfl", "torch"],
)
