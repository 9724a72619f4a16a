"""Local training of 100 clients (batch 32, 10 steps): fedsim against a plain loop, one module and optimizer per client.

    python benchmarks/learning_kernels.py [--repeats 5] [--device cpu] [--models logistic_regression mlp cnn]

All figures come from one process with interleaved repeats; the best repeat of each counts. Ratios carry over to other
machines better than times. ``centralized`` is one model on batches of 100 x 32: the same floating-point work without
the bookkeeping of clients. Images have the shape of MNIST, or that of CIFAR-10 for models made for it.

The limits of the hardware are measured as well: a product of large matrices, a convolution of many images (5x5, 64
channels to 64) and a copy of a large tensor. A table at the end shows which share of each limit the last way of each
model reached: floating-point operations of all products and convolutions relative to the first two, and relative to
the third the bytes that must be moved at least: in every step, every client's model is read and written once, and its
samples are read once.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import numpy as np
import torch
from torch import nn

from fedsim.learning.device import Execution
from fedsim.learning.learner import Learner
from fedsim.learning.rates import learning_rate
from fedsim.learning.workers import Station
from fedsim.methods.base import Method, MethodContext
from fedsim.methods.fedavg import FedAvg, FedAvgParams
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import Training
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import Partition
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train

CLIENTS, SAMPLES, BATCH, STEPS, RATE = 100, 320, 32, 10, 0.05
# Minimum ratio to the plain loop with torch's default threads.
LIMITS = {
    "cpu": {"logistic_regression": 8.0, "mlp": 3.0, "cnn": 1.2},
    "cuda": {"mlp": 25.0, "cnn": 25.0, "wangji_cifar_cnn": 8.0},
}


def make_task(model: str, clients: int = CLIENTS, samples: int = SAMPLES) -> SupervisedTask:
    """Random images, ``samples`` per client."""
    rng = np.random.default_rng(0)
    total = clients * samples
    shape = (3, 32, 32) if "cifar" in model or "resnet" in model else (1, 28, 28)
    dataset = Dataset(
        name="random",
        train_x=rng.standard_normal((total, *shape), dtype=np.float32),
        train_y=rng.integers(0, 10, total),
        test_x=np.zeros((1, *shape), np.float32),
        test_y=np.zeros(1, np.int64),
        classes=10,
    )
    offsets = np.arange(clients + 1, dtype=np.int64) * samples
    component = CATALOG.parts("model")[model]
    return SupervisedTask(
        dataset, Partition(offsets, np.arange(total)), component(component.Params())
    )


def make_learner(
    task: SupervisedTask,
    method: type[Method] = FedAvg,
    params: object = FedAvgParams(),
    **training_options: object,
) -> Learner:
    """A learner of plain SGD, unless the options of the training section say otherwise."""
    options = {
        "optimizer": {"name": "sgd", "lr": RATE},
        "batch_size": BATCH,
        "local_steps": STEPS,
        **training_options,
    }
    training = Training(**options)
    execution = Execution.of(training)
    context = MethodContext(
        layout=task.layout,
        clients=task.clients,
        samples=task.samples,
        learning_rate=learning_rate(training),
        local_steps=np.full(task.clients, training.local_steps, dtype=np.int64),
        tensors=lambda: (execution.dtype, execution.device),
        seed=0,
        optimizer=training.optimizer.create(),
    )
    return Learner(Station(task, method(params, context), training, 0, execution))


def fedsim_round(learner: Learner) -> Callable[[], None]:
    """One synchronous round of all clients."""

    def run() -> None:
        version = learner.version
        contributions = []
        for client in range(learner.station.task.clients):
            number = version * learner.station.task.clients + client
            learner.hold(version)
            learner.submit(Train(number, client, version, version, version, STEPS, STEPS, 0.0))
            contributions.append(Contribution(number, client, 0))
        learner.submit(Aggregate(version + 1, 0.0, version, tuple(contributions)))
        learner.flush()
        if learner.station.execution.device.type == "cuda":
            torch.cuda.synchronize()

    return run


def plain_round(task: SupervisedTask, execution: Execution, threads: int) -> Callable[[], None]:
    """The obvious loop: a copy of the module and an optimizer for each client, then the mean."""
    device = execution.device
    x, y = task.train_x.to(device), task.train_y.to(device)
    server: nn.Module = copy.deepcopy(task.module).to(device)
    loss_function = nn.CrossEntropyLoss()

    def run() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        states = []
        for client in range(task.clients):
            rows = torch.from_numpy(task.rows[task.offsets[client] : task.offsets[client + 1]])
            model = copy.deepcopy(server)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            order = rows[torch.randperm(len(rows))].to(device)
            for step in range(STEPS):
                batch = order[step * BATCH : (step + 1) * BATCH]
                optimizer.zero_grad()
                loss_function(model(x[batch]), y[batch]).backward()
                optimizer.step()
            states.append(model.state_dict())
        mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
        server.load_state_dict(mean)
        torch.set_num_threads(before)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def centralized_round(
    task: SupervisedTask, execution: Execution, threads: int
) -> Callable[[], None]:
    """One model, 10 steps on batches of 100 x 32."""
    device = execution.device
    x, y = task.train_x.to(device), task.train_y.to(device)
    model = copy.deepcopy(task.module).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loss_function = nn.CrossEntropyLoss()

    def run() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        size = task.clients * BATCH
        order = torch.randperm(len(x), device=device)
        for step in range(STEPS):
            batch = order[step * size : (step + 1) * size]
            optimizer.zero_grad()
            loss_function(model(x[batch]), y[batch]).backward()
            optimizer.step()
        torch.set_num_threads(before)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def best_of(repeats: int, runs: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Seconds of the best repeat of each; repeats take turns."""
    for run in runs.values():
        run()
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def ceilings(device: torch.device, threads: int) -> dict[str, float]:
    """Floating-point operations per second of a large product and a large convolution, bytes per second of a copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    size = 8192 if device.type == "cuda" else 2048
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    product = torch.empty_like(a)
    source = torch.empty(1 << (28 if device.type == "cuda" else 26), device=device)
    target = torch.empty_like(source)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def multiply() -> None:
        torch.mm(a, b, out=product)
        wait()

    images = torch.randn(1024 if device.type == "cuda" else 64, 64, 28, 28, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    layer = nn.Conv2d(64, 64, 5, device=device)
    layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def convolve() -> None:
        with torch.no_grad():
            layer(images)
        wait()

    def copy_all() -> None:
        target.copy_(source)
        wait()

    best = best_of(5, {"product": multiply, "convolution": convolve, "copy": copy_all})
    torch.set_num_threads(before)
    return {
        "product": 2 * size**3 / best["product"],
        "convolution": 2 * len(images) * 24 * 24 * 64 * 64 * 25 / best["convolution"],
        "copy": 2 * source.nbytes / best["copy"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--models", nargs="+", help="by default those with a limit")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    device = Execution.of(Training(device=options.device)).device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{cores} cores"
    limits = LIMITS[device.type]
    ceiling = ceilings(device, cores)
    print(f"{CLIENTS} clients, batch {BATCH}, {STEPS} steps; {name}; torch {torch.__version__}")
    print(", ".join(f"{name} {rate / 1e9:,.0f} G/s" for name, rate in ceiling.items()))
    print(f"{'model':20} {'way':26} {'ms/round':>10} {'x plain':>8} {'x plain, 1 thread':>18}")
    missed, reached = [], []
    for model in options.models or limits:
        task = make_task(model)
        one = make_learner(task, device=options.device, threads=1)
        execution = one.station.execution
        runs = {
            f"plain loop, {cores} threads": plain_round(task, execution, cores),
            "plain loop, 1 thread": plain_round(task, execution, 1),
            f"centralized, {cores} threads": centralized_round(task, execution, cores),
            "centralized, 1 thread": centralized_round(task, execution, 1),
            f"fedsim {one.station.kernel.name}, 1 worker": fedsim_round(one),
        }
        if execution.device.type == "cpu":
            many = make_learner(task, device=options.device, threads=cores)
            runs[f"fedsim {one.station.kernel.name}, {cores} workers"] = fedsim_round(many)
        best = best_of(options.repeats, runs)
        default, single = list(best.values())[:2]
        for name, seconds in best.items():
            print(
                f"{model:20} {name:26} {1000 * seconds:10.1f} {default / seconds:8.2f} {single / seconds:18.2f}",
                flush=True,
            )
        samples = CLIENTS * STEPS * BATCH
        work = samples * task.flops_per_sample()
        moved = 2 * 4 * CLIENTS * STEPS * task.layout.size + 4 * samples * task.train_x[0].numel()
        rates = {"product": work, "convolution": work, "copy": moved}
        shares = [f"{rate / seconds / ceiling[name]:14.0%}" for name, rate in rates.items()]
        reached.append(f"{model:20} {work / seconds / 1e9:9.1f} {' '.join(shares)}")
        if default / seconds < limits.get(model, 0.0):
            missed.append(f"{model} {default / seconds:.2f} (limit {limits[model]:g})")
    print(f"\n{'model':20} {'GFLOP/s':>9} " + " ".join(f"{f'of {name}':>14}" for name in ceiling))
    print("\n".join(reached))
    print("limits: " + (", ".join(missed) + " missed" if missed else "kept"))


if __name__ == "__main__":
    main()
