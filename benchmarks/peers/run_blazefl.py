"""BlazeFL: its own FedAvg, clients one after the other in one process, or on one thread per core."""

from __future__ import annotations

import torch
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgPartitionedDataset,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.core import ModelSelector
from torch_work import accuracy_of, build, client_batches, parameters_of, steps_drawn
from work import BATCH, COHORT, CORES, RATE, StopWatch, read_work

work = read_work()
watch = StopWatch()
batches = client_batches(work.x, work.y)


class Models(ModelSelector):
    def select_model(self, model_name):
        return build(model_name)


class Clients(FedAvgPartitionedDataset):
    def get_dataset(self, type_, cid):
        raise NotImplementedError  # required of every such class, but not called here

    def get_dataloader(self, type_, cid, batch_size=None, generator=None):
        return batches[cid]


clients, models = Clients(), Models()
server = FedAvgBaseServerHandler(
    models, work.model, clients, work.rounds, len(batches), COHORT / len(batches), "cpu", BATCH, 0
)
local = (models, work.model, clients, "cpu", len(batches), 1, BATCH, RATE, 0)
if CORES == 1:
    trainer = FedAvgBaseClientTrainer(*local)
else:
    torch.set_num_threads(1)
    trainer = FedAvgThreadPoolClientTrainer(*local, CORES)
while not server.if_stop():
    trainer.local_process(server.downlink_package(), server.sample_clients())
    for package in trainer.uplink_package():
        server.load(package)
    watch.mark()
work.hand_in(
    watch,
    steps=steps_drawn(batches),
    parameters=parameters_of(server.model),
    accuracy=accuracy_of(server.model, work),
    packages=["blazefl", "torch"],
)
