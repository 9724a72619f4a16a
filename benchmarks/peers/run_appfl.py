"""APPFL: its virtual-time simulator with a synchronous server and a fixed time per step."""

from __future__ import annotations

import logging
from pathlib import Path

import torchvision_stand_in  # noqa: F401
from appfl.agent.sim_client import SimClientAgent
from appfl.agent.sim_server import SimServerAgent
from appfl.vsim import ClientProfile, SyncSimDriver
from omegaconf import OmegaConf
from torch_work import accuracy_of, client_batches, parameters_of, steps_drawn
from work import BATCH, COHORT, RATE, StopWatch, read_work

# APPFL builds models and metrics from its users' files.
SOURCE = """
import sys
sys.path.insert(0, {here!r})
from torch_work import build

def network():
    return build({model!r})

def correct(labels, outputs):
    return (outputs.argmax(1) == labels).mean()
"""

work = read_work()
watch = StopWatch()
source = work.folder / "network.py"
here = str(Path(__file__).resolve().parent)
source.write_text(SOURCE.format(here=here, model=work.model))
# Saving memory means a garbage collection after every client, which takes longer than its training.
shared = {
    "model_configs": {"model_path": str(source), "model_name": "network"},
    "train_configs": {
        "trainer": "VanillaTrainer",
        "mode": "epoch",
        "num_local_epochs": 1,
        "optim": "SGD",
        "optim_args": {"lr": RATE},
        "train_batch_size": BATCH,
        "loss_fn": "CrossEntropyLoss",
        "metric_path": str(source),
        "metric_name": "correct",
        "device": "cpu",
        "optimize_memory": False,
        "logging_output_dirname": str(work.folder),
        "logging_output_filename": "client",
    },
}
batches = client_batches(work.x, work.y)
server = SimServerAgent(
    {
        "client_configs": shared,
        "server_configs": {
            "num_clients": len(batches),
            "num_global_epochs": work.rounds,
            "scheduler": "SyncScheduler",
            "scheduler_kwargs": {"num_clients": len(batches), "optimize_memory": False},
            "aggregator": "FedAvgAggregator",
            "aggregator_kwargs": {"client_weights_mode": "equal", "optimize_memory": False},
            "optimize_memory": False,
            "device": "cpu",
            "logging_output_dirname": str(work.folder),
            "logging_output_filename": "server",
        },
    }
)
logging.disable(logging.INFO)
clients = []
for number, own in enumerate(batches):
    configuration = OmegaConf.create({**shared, "optimize_memory": False})
    client = SimClientAgent(configuration, f"client{number}", (own, None))
    # In place of a DataLoader, which collects samples one by one.
    client.trainer.train_dataloader = own
    clients.append(client)


class Driver(SyncSimDriver):
    def _run_round(self) -> bool:
        done = super()._run_round()
        watch.mark()
        return done


Driver(
    server,
    clients,
    {client.get_id(): ClientProfile() for client in clients},
    participants_per_round=COHORT,
    logger=logging.getLogger("vsim"),
    base_step_time=0.1,
    target_rounds=work.rounds,
).run()
server.model.load_state_dict(server.get_parameters(serial_run=True))
work.hand_in(
    watch,
    steps=steps_drawn(batches),
    parameters=parameters_of(server.model),
    accuracy=accuracy_of(server.model, work),
    packages=["appfl", "torch"],
)
