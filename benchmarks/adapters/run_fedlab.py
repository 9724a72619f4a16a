"""FedLab: its stand-alone pipeline, clients one after the other in one process.

Its documentation leaves ``train`` and the batches to its users.
"""

from __future__ import annotations

from typing import Any

import torchvision_stand_in  # noqa: F401
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from torch_work import (
    Batches,
    accuracy_of,
    build,
    client_batches,
    parameters_of,
    steps_drawn,
    train,
)
from work import BATCH, COHORT, RATE, read_work

work = read_work()
batches = client_batches(work.x, work.y)


class Clients(FedDataset):
    def get_dataloader(self, id: int, batch_size: int) -> Batches:
        return batches[id]


class Trainer(SGDSerialClientTrainer):
    def train(self, model_parameters: Any, train_loader: Batches) -> list[Any]:
        self.set_model(model_parameters)
        train(self._model, train_loader)
        return [self.model_parameters]


class Pipeline(StandalonePipeline):
    def evaluate(self) -> None:
        pass


server = SyncServerHandler(build(work.model), work.rounds, COHORT / len(batches))
trainer = Trainer(build(work.model), len(batches))
trainer.setup_dataset(Clients())
trainer.setup_optim(epochs=1, batch_size=BATCH, lr=RATE)
Pipeline(server, trainer).main()
work.hand_in(
    steps=steps_drawn(batches),
    parameters=parameters_of(server.model),
    accuracy=accuracy_of(server.model, work),
    packages=["fedlab", "torch"],
)
