"""FedLab: its stand-alone pipeline, clients one after the other in one process."""

from __future__ import annotations

import torchvision_stand_in  # noqa: F401
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from torch_work import accuracy_of, build, client_batches, parameters_of, steps_drawn
from work import BATCH, COHORT, RATE, StopWatch, read_work

work = read_work()
watch = StopWatch()
batches = client_batches(work.x, work.y)


class Clients(FedDataset):
    def get_dataloader(self, id, batch_size):
        return batches[id]


class Pipeline(StandalonePipeline):
    def evaluate(self):
        watch.mark()


server = SyncServerHandler(build(work.model), work.rounds, COHORT / len(batches))
trainer = SGDSerialClientTrainer(build(work.model), len(batches))
trainer.setup_dataset(Clients())
trainer.setup_optim(epochs=1, batch_size=BATCH, lr=RATE)
Pipeline(server, trainer).main()
work.hand_in(
    watch,
    steps=steps_drawn(batches),
    parameters=parameters_of(server.model),
    accuracy=accuracy_of(server.model, work),
    packages=["fedlab", "torch"],
)
