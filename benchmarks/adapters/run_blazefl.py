"""BlazeFL: its own FedAvg, clients one after the other in one process, or on a thread for each core.

Trainers with a ``train`` of the user's own are what its documentation shows.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["TQDM_DISABLE"] = "1"  # no progress bar per round

import torch
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgPartitionedDataset,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.contrib.fedavg import FedAvgUplinkPackage
from blazefl.core import ModelSelector, deserialize_model, serialize_model
from torch import nn
from torch_work import (
    Batches,
    accuracy_of,
    build,
    client_batches,
    parameters_of,
    steps_drawn,
    train,
)
from work import BATCH, COHORT, CORES, RATE, read_work

work = read_work()
batches = client_batches(work.x, work.y)


class Models(ModelSelector):
    def select_model(self, model_name: str) -> nn.Module:
        return build(model_name)


class Clients(FedAvgPartitionedDataset):
    def get_dataset(self, type_: Any, cid: int) -> Any:
        raise NotImplementedError  # abstract in BlazeFL; nothing in this adapter calls it

    def get_dataloader(
        self, type_: Any, cid: int, batch_size: int | None = None, generator: Any = None
    ) -> Batches:
        return batches[cid]


class Trainer(FedAvgBaseClientTrainer):
    def train(self, model_parameters: Any, train_loader: Batches, cid: int) -> Any:
        deserialize_model(self.model, model_parameters)
        train(self.model, train_loader)
        return FedAvgUplinkPackage(cid, serialize_model(self.model), len(train_loader.y))


clients, models = Clients(), Models()
server = FedAvgBaseServerHandler(
    models, work.model, clients, work.rounds, len(batches), COHORT / len(batches), "cpu", BATCH, 0
)
local = (models, work.model, clients, "cpu", len(batches), 1, BATCH, RATE, 0)
if CORES == 1:
    trainer = Trainer(*local)
else:
    torch.set_num_threads(1)
    trainer = FedAvgThreadPoolClientTrainer(*local, CORES)
while not server.if_stop():
    trainer.local_process(server.downlink_package(), server.sample_clients())
    for package in trainer.uplink_package():
        server.load(package)
work.hand_in(
    steps=steps_drawn(batches),
    parameters=parameters_of(server.model),
    accuracy=accuracy_of(server.model, work),
    packages=["blazefl", "torch"],
)
