"""APPFL: its virtual-time simulator, with a fixed time per step and clients of different speeds.

Its documentation leaves trainers to its users, and so do we: local training is the fastest that torch offers. Saving
memory would mean a collection of garbage after every client, which takes longer than its training, and is off.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torchvision_stand_in  # noqa: F401
from appfl.agent.sim_client import SimClientAgent
from appfl.agent.sim_server import SimServerAgent
from appfl.vsim import AsyncSimDriver, ClientProfile, SyncSimDriver
from omegaconf import OmegaConf
from torch_work import accuracy_of, client_batches, parameters_of, steps_drawn
from work import COHORT, read_work

# APPFL builds models and trainers from files of its users.
SOURCE = """
import copy
import sys
sys.path.insert(0, {here!r})
from appfl.algorithm.trainer import BaseTrainer
from torch_work import build, train

def network():
    return build({model!r})

class Trainer(BaseTrainer):
    def train(self, **kwargs):
        train(self.model, self.train_dataset)
        self.round += 1

    def get_parameters(self):
        steps = len(self.train_dataset)
        return copy.deepcopy(self.model.state_dict()), {{"current_local_steps": steps}}
"""

work = read_work()
source = work.folder / "network.py"
here = str(Path(__file__).resolve().parent)
source.write_text(SOURCE.format(here=here, model=work.model))
shared = {
    "model_configs": {"model_path": str(source), "model_name": "network"},
    "train_configs": {
        "trainer": "Trainer",
        "trainer_path": str(source),
        "device": "cpu",
        "optimize_memory": False,
        "logging_output_dirname": str(work.folder),
        "logging_output_filename": "client",
    },
}
batches = client_batches(work.x, work.y)
updates = work.rounds * COHORT
# It divides alpha by the number of clients: the mean of ten changes, and 0.6 towards every model that arrives.
aggregators: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("FedAvgAggregator", {"client_weights_mode": "equal"}),
    "fedbuff": ("FedBuffAggregator", {"K": COHORT, "alpha": len(batches) / COHORT}),
    "fedasync": ("FedAsyncAggregator", {"alpha": 0.6 * len(batches)}),
}
aggregator, settings = aggregators[work.method]
synchronous = work.method == "fedavg"
scheduler = {"num_clients": len(batches), "optimize_memory": False}
server = SimServerAgent(
    {
        "client_configs": shared,
        "server_configs": {
            "num_clients": len(batches),
            # Without rounds, it counts every update.
            "num_global_epochs": work.rounds if synchronous else updates,
            "scheduler": "SyncScheduler" if synchronous else "AsyncScheduler",
            "scheduler_kwargs": scheduler,
            "aggregator": aggregator,
            "aggregator_kwargs": settings | {"optimize_memory": False},
            "optimize_memory": False,
            "device": "cpu",
            "logging_output_dirname": str(work.folder),
            "logging_output_filename": "server",
        },
    }
)
logging.disable(logging.INFO)
clients = [
    SimClientAgent(
        OmegaConf.create({**shared, "optimize_memory": False}), f"client{number}", (data, None)
    )
    for number, data in enumerate(batches)
]
speeds = np.random.default_rng(0).lognormal(0.0, 0.8, len(clients)).tolist()
profiles = {
    client.get_id(): ClientProfile(compute_factor=speed)
    for client, speed in zip(clients, speeds, strict=True)
}
logger = logging.getLogger("vsim")
if synchronous:
    SyncSimDriver(
        server,
        clients,
        profiles,
        participants_per_round=COHORT,
        logger=logger,
        base_step_time=60.0,
        target_rounds=work.rounds,
    ).run()
else:
    AsyncSimDriver(
        server, clients, profiles, max_in_flight=COHORT, logger=logger, base_step_time=60.0
    ).run()
server.model.load_state_dict(server.get_parameters(serial_run=True))
work.hand_in(
    steps=steps_drawn(batches),
    parameters=parameters_of(server.model),
    accuracy=accuracy_of(server.model, work),
    packages=["appfl", "torch"],
)
