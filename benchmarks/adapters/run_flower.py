"""Flower: its simulation engine on Ray, with one single-threaded worker process per core."""

from __future__ import annotations

import os
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_work import accuracy_of, batches_of_file, build, build_once, parameters_of, train
from work import COHORT, CORES, read_work

work = read_work()
data, model_name = str(work.data), work.model
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    batches = batches_of_file(data)[int(context.node_config["partition-id"])]
    model = build_once(model_name)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, batches)
    metrics = {
        "num-examples": len(batches.y),
        "steps": len(batches),
        "process": os.getpid(),
        "cpu_s": time.process_time(),
    }
    reply = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(reply), reply_to=message)


steps = 0
# By number of the process. Ray's daemon ignores the end of its workers, so that their time is in no parent's sum.
workers_cpu_s: dict[int, float] = {}
final = build(work.model)


def count_steps(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    global steps
    for reply in replies:
        metrics = reply["metrics"]
        steps += int(metrics["steps"])
        process, cpu_s = int(metrics["process"]), float(metrics["cpu_s"])
        workers_cpu_s[process] = max(cpu_s, workers_cpu_s.get(process, 0.0))
    return MetricRecord()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    strategy = FedAvg(
        fraction_train=COHORT / len(work.x),
        fraction_evaluate=0.0,
        min_train_nodes=COHORT,
        min_available_nodes=len(work.x),
        train_metrics_aggr_fn=count_steps,
    )
    result = strategy.start(
        grid,
        initial_arrays=ArrayRecord(final.state_dict()),
        num_rounds=work.rounds,
        train_config=ConfigRecord(),
    )
    final.load_state_dict(result.arrays.to_torch_state_dict())


run_simulation(
    server_app,
    client_app,
    num_supernodes=len(work.x),
    backend_config={
        "init_args": {"num_cpus": CORES, "include_dashboard": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    },
)
work.hand_in(
    steps=steps,
    parameters=parameters_of(final),
    accuracy=accuracy_of(final, work),
    packages=["flwr", "ray", "torch"],
    more_cpu_s=sum(workers_cpu_s.values()),
)
