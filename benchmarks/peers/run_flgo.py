"""FLGo: a benchmark made from the arrays, its FedAvg, clients one after the other in one process."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import flgo
import flgo.algorithm.fedavg as fedavg
from flgo.benchmark.partition import IIDPartitioner
from flgo.experiment.logger import BasicLogger
from torch_work import accuracy_of, parameters_of
from work import BATCH, COHORT, CORES, RATE, StopWatch, read_work

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
watch = StopWatch()
# FLGo imports its generated code from the working folder.
os.chdir(work.folder)
sys.path.insert(0, str(work.folder))
configuration = Path("configuration.py")
here = str(Path(__file__).resolve().parent)
configuration.write_text(CONFIGURATION.format(here=here, data=str(work.data), model=work.model))
benchmark = importlib.import_module(flgo.gen_benchmark_from_file("common_work", str(configuration)))
importlib.import_module(f"{benchmark.__name__}.core")
benchmark.visualize = lambda *arguments: None  # a picture of the split, which takes minutes
# Required of such data sets since torch 2.13.
benchmark.core.TaskPipe.TaskDataset.__getitems__ = lambda own, rows: [own[row] for row in rows]
flgo.gen_task_by_(benchmark, IIDPartitioner(num_clients=len(work.x)), "task")


class Quiet(BasicLogger):
    def check_if_log(self, *args, **kwargs):
        watch.mark()
        return False

    def log_once(self, *args, **kwargs):
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
        "load_mode": "mem",
    },
    Logger=Quiet,
)
steps = 0
draw = fedavg.Client.get_batch_data


def counted(self):
    global steps
    steps += 1
    return draw(self)


fedavg.Client.get_batch_data = counted
runner.run()
work.hand_in(
    watch,
    steps=steps,
    parameters=parameters_of(runner.model),
    accuracy=accuracy_of(runner.model, work),
    packages=["flgo", "torch"],
)
