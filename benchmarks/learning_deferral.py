"""Deferred execution of a buffered asynchronous server (FedBuff's pattern) against training eagerly, client by client.

    python -m benchmarks.learning_deferral [--in-flight 200] [--updates 600] [--model mlp] [--device cpu]

The same timeline four times: the plain loop (a copy of the module and an optimizer for every dispatch, when it ends)
with torch's default threads and with one, fedsim executing every instruction at once (``training.verify: eager``), and
fedsim deferring. The last two must give the same bits.
"""

from __future__ import annotations

import argparse
import copy
import heapq
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import numpy as np
import torch
from torch import nn

from benchmarks.learning_kernels import BATCH, RATE, STEPS, make_learner, make_task
from fedsim.learning.learner import Learner
from fedsim.methods.base import Method
from fedsim.methods.fedavg import FedAvg, FedAvgParams
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train

Call = tuple[str, int | Train | Aggregate]
# Minimum ratio to the plain loop with torch's default threads.
LIMITS = {"cpu": 2.5, "cuda": 5.0}


def make_timeline(clients: int, in_flight: int, updates: int, buffer: int) -> list[Call]:
    """Clients with lognormal durations; a client that ends is replaced at once by another."""
    rng = np.random.default_rng(0)
    calls: list[Call] = []
    idle = list(range(clients))
    rng.shuffle(idle)
    sequences = [0] * clients
    flying: list[tuple[float, int, Train]] = []
    buffered: list[Train] = []
    version = dispatches = 0

    def dispatch(now: float) -> None:
        nonlocal dispatches
        client = idle.pop(int(rng.integers(len(idle))))
        train = Train(dispatches, client, sequences[client], version, version, STEPS, STEPS, now)
        sequences[client] += 1
        heapq.heappush(flying, (now + rng.lognormal(0.0, 0.5), dispatches, train))
        dispatches += 1
        calls.append(("hold", version))

    for _ in range(in_flight):
        dispatch(0.0)
    for _ in range(updates):
        now, _, train = heapq.heappop(flying)
        idle.append(train.client)
        buffered.append(train)
        if len(buffered) == buffer:
            calls += [("submit", each) for each in buffered]
            contributions = tuple(
                Contribution(each.dispatch_id, each.client, version - each.version)
                for each in buffered
            )
            version += 1
            calls.append(("submit", Aggregate(version, now, version, contributions)))
            buffered = []
        dispatch(now)
    return calls


def plain(task: SupervisedTask, calls: list[Call], device: torch.device, threads: int) -> float:
    """Train every dispatch with a separate module and optimizer, from its version; returns seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    begin = time.perf_counter()
    x, y = task.train_x.to(device), task.train_y.to(device)
    loss_function = nn.CrossEntropyLoss()
    server = copy.deepcopy(task.module).to(device)
    holds: dict[int, int] = {}
    versions = {0: {name: value.clone() for name, value in server.state_dict().items()}}
    updates: dict[int, dict[str, torch.Tensor]] = {}
    newest = 0
    for _, argument in calls:
        if isinstance(argument, int):
            holds[argument] = holds.get(argument, 0) + 1
        elif isinstance(argument, Train):
            model = copy.deepcopy(server)
            model.load_state_dict(versions[argument.version])
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            first, last = task.offsets[argument.client], task.offsets[argument.client + 1]
            rows = torch.from_numpy(task.rows[first:last])
            epochs = -(-argument.steps * BATCH // len(rows))
            order = torch.cat([rows[torch.randperm(len(rows))] for _ in range(epochs)]).to(device)
            for step in range(argument.steps):
                batch = order[step * BATCH : (step + 1) * BATCH]
                optimizer.zero_grad()
                loss_function(model(x[batch]), y[batch]).backward()
                optimizer.step()
            base = versions[argument.version]
            updates[argument.dispatch_id] = {
                name: value - base[name] for name, value in model.state_dict().items()
            }
            holds[argument.version] -= 1
            if not holds[argument.version] and argument.version < newest:
                del versions[argument.version]
        elif isinstance(argument, Aggregate):
            changes = [updates.pop(item.dispatch_id) for item in argument.contributions]
            now = versions[newest]
            newest = argument.version
            versions[newest] = {
                name: value + torch.stack([change[name] for change in changes]).mean(0)
                for name, value in now.items()
            }
    if device.type == "cuda":
        torch.cuda.synchronize()
    torch.set_num_threads(before)
    return time.perf_counter() - begin


def with_fedsim(
    task: SupervisedTask,
    calls: list[Call],
    device: str,
    method: type[Method] = FedAvg,
    params: object = FedAvgParams(weights="uniform"),
    **options: object,
) -> tuple[Learner, float]:
    learner = make_learner(task, method, params, device=device, **options)
    start = time.perf_counter()
    for call, argument in calls:
        getattr(learner, call)(argument)
    learner.close()
    if learner.station.execution.device.type == "cuda":
        torch.cuda.synchronize()
    return learner, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--buffer", type=int, default=10)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    task = make_task(options.model, clients=max(250, options.in_flight * 5 // 4), samples=64)
    calls = make_timeline(task.clients, options.in_flight, options.updates, options.buffer)
    best = dict.fromkeys(
        ("plain loop", "plain, one thread", "fedsim, eager", "fedsim, deferred"), float("inf")
    )
    for _ in range(options.repeats):
        eager, eager_s = with_fedsim(task, calls, options.device, verify="eager")
        deferred, deferred_s = with_fedsim(task, calls, options.device)
        plain_s = plain(task, calls, deferred.station.execution.device, torch.get_num_threads())
        single_s = plain(task, calls, deferred.station.execution.device, 1)
        same = torch.equal(eager.server["model"], deferred.server["model"])
        for name, seconds in zip(best, (plain_s, single_s, eager_s, deferred_s), strict=True):
            best[name] = min(best[name], seconds)
    own_device = deferred.station.execution.device
    print(
        f"{options.model}: {options.updates} updates, buffer {options.buffer}, {options.in_flight} at work, "
        f"{own_device.type}, kernel {deferred.station.kernel.name}, torch {torch.__version__}"
    )
    for name, seconds in best.items():
        print(f"{name:20} {seconds:8.2f} s  {best['plain loop'] / seconds:6.2f} x plain")
    print(f"eager and deferred have the same bits: {same}")
    if not same:
        eager_model, deferred_model = eager.server["model"], deferred.server["model"]
        print(f"largest difference: {float((eager_model - deferred_model).abs().max()):.1e}")
    ratio, limit = best["plain loop"] / best["fedsim, deferred"], LIMITS[own_device.type]
    print(f"limit {limit:g}: {'kept' if ratio >= limit else 'missed'}")


if __name__ == "__main__":
    main()
