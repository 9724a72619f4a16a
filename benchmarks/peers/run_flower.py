"""Flower: its simulation engine on Ray, with one single-threaded worker process per core."""

from __future__ import annotations

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import psutil
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_work import accuracy_of, batches_of_file, build, parameters_of, train
from work import COHORT, CORES, StopWatch, read_work

work = read_work()
data, model_name = str(work.data), work.model
client_app, server_app = ClientApp(), ServerApp()


def cpu_s_of_all() -> float:
    """Processor seconds of this process and of Ray's, which are its children."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


watch = StopWatch(cpu_s_of_all)


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    batches = batches_of_file(data)[int(context.node_config["partition-id"])]
    model = build(model_name)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, batches)
    reply = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(batches.y), "steps": len(batches)}),
    }
    return Message(content=RecordDict(reply), reply_to=message)


steps = 0
final = build(work.model)


def count_steps(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    global steps
    steps += sum(int(reply["metrics"]["steps"]) for reply in replies)
    return MetricRecord()


def end_of_round(number: int, arrays: ArrayRecord) -> None:
    if number:
        watch.mark()


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
        evaluate_fn=end_of_round,
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
    watch,
    steps=steps,
    parameters=parameters_of(final),
    accuracy=accuracy_of(final, work),
    packages=["flwr", "ray", "torch"],
)
