"""FLGo: a benchmark made from the arrays, its FedAvg, clients one after the other in one process.

Clients with a ``train`` of the user's own are what its documentation shows.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import flgo
import flgo.algorithm.fedavg as fedavg
import torch
from flgo.benchmark.partition import IIDPartitioner
from flgo.experiment.logger import BasicLogger
from torch_work import Batches, accuracy_of, parameters_of, steps_drawn, train
from work import BATCH, COHORT, CORES, RATE, read_work

CONFIGURATION = """
import sys
sys.path.insert(0, {here!r})
import numpy as np
import torch
from torch_work import build

arrays = np.load({data!r})
test = arrays["is_test"]

def tensors(rows):
    return torch.utils.data.TensorDataset(
        torch.from_numpy(arrays["x"][rows]), torch.from_numpy(arrays["y"][rows]))

train_data, test_data = tensors(~test), tensors(test)

def get_model(*args, **kwargs):
    return build({model!r})
"""

work = read_work()
# FLGo imports what it generates from the working folder.
os.chdir(work.folder)
sys.path.insert(0, str(work.folder))
configuration = Path("configuration.py")
here = str(Path(__file__).resolve().parent)
configuration.write_text(CONFIGURATION.format(here=here, data=str(work.data), model=work.model))
benchmark: Any = importlib.import_module(
    flgo.gen_benchmark_from_file("common_work", str(configuration))
)
importlib.import_module(f"{benchmark.__name__}.core")
benchmark.visualize = lambda *arguments: None  # a picture of the split, which takes minutes
# Methods that torch requires of such data sets since version 2.13.
benchmark.core.TaskPipe.TaskDataset.__getitems__ = lambda dataset, rows: [
    dataset[row] for row in rows
]
flgo.gen_task_by_(benchmark, IIDPartitioner(num_clients=len(work.x)), "task")


class Quiet(BasicLogger):
    def check_if_log(self, *args: Any, **kwargs: Any) -> bool:
        return False

    def log_once(self, *args: Any, **kwargs: Any) -> None:
        pass


runner = flgo.init(
    "task",
    fedavg,
    {
        "num_rounds": work.rounds,
        "proportion": COHORT / len(work.x),
        "sample": "uniform",
        "num_epochs": 1,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "learning_rate_decay": 1.0,
        "train_holdout": 0.0,
        "eval_interval": 0,
        "no_tqdm": True,
        "log_level": "WARNING",
        "torch_num_threads": CORES,
    },
    Logger=Quiet,
)
for client in runner.clients:
    rows = torch.as_tensor(client.train_data.indices)
    x, y = client.train_data.dataset.tensors
    client.batches = Batches(x[rows], y[rows])
fedavg.Client.train = lambda client, model: train(model, client.batches)
runner.run()
work.hand_in(
    steps=steps_drawn([client.batches for client in runner.clients]),
    parameters=parameters_of(runner.model),
    accuracy=accuracy_of(runner.model, work),
    packages=["flgo", "torch"],
)
