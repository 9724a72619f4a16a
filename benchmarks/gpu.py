"""Rounds of local training on a GPU: fedsim beside what users would write instead.

    python -m benchmarks.gpu --model cnn [--clients 10 50] [--precision tf32 bfloat16] [--seconds 1.0] [--json FILE]
    python -m benchmarks.gpu --asynchronous --model mlp cnn     FedBuff and FedAsync, 1,000 clients at work

100 clients (50 with ``resnet`` and ``transformer``) hold 200 samples each; a round trains some of them, drawn at
random, for one local epoch of plain SGD (batches of 20: 10 steps) and averages them. The data are on the GPU. Ways:

- ``fedsim``: the learning plane, from the instructions of a round to its new version.
- ``loop``: a copy of the module and an optimizer per client, one after the other.
- ``compiled``: the same with one module compiled by ``torch.compile`` (CUDA graphs), into which each client's weights
  are copied.
- ``vmap``: ``torch.func.vmap`` over stacked weights, written by hand.
- ``jax``: ``jit`` of ``vmap`` over clients of ``scan`` over steps, as FedJAX does it; one call per round.

``loop`` and ``compiled`` train one client after the other: their rounds have at most 5 clients, and the figure is
scaled.
Measurements take turns, each of ``--seconds``; the figure is the fastest mean of two. ``busy`` is the share of the wall
time in which the GPU executes at least one kernel, from a trace of three of fedsim's rounds. ``of product`` relates the
floating-point operations of all products and convolutions to the measured rate of a large product in that precision,
``of copy`` the bytes that must be moved at least (each client's model once read and written per step, samples read) to
the measured rate of a large copy.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks import learning_kernels
from benchmarks.learning_deferral import make_timeline, with_fedsim
from fedsim.learning.learner import Learner
from fedsim.methods.asynchronous import FedAsync, FedBuff
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import Partition
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train

SAMPLES, BATCH, STEPS, RATE = 200, 20, 10, 0.05
WAYS = ("fedsim", "loop", "compiled", "vmap", "jax")
SEQUENTIAL, MOST_SEQUENTIAL = ("loop", "compiled"), 5
IN_FLIGHT, UPDATES = 1000, 4000
CLASSES, LENGTH, CHARACTERS = 10, 128, 80
MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "mlp": ("mlp", {"hidden": [200, 200]}, 100),
    "cnn": ("fedcompass_cnn", {}, 100),
    "resnet": ("resnet18", {}, 50),
    "transformer": ("char_transformer", {"width": 192, "heads": 6, "layers": 4}, 50),
}
"""fedsim's model, its parameters, and the number of clients."""
Round = Callable[[], None]


def make_task(model: str, clients: int | None = None) -> SupervisedTask:
    """Random samples, and the model."""
    name, params, default = MODELS[model]
    clients = clients or default
    rng = np.random.default_rng(0)
    total = clients * SAMPLES
    classes = CLASSES
    if model == "transformer":
        classes = CHARACTERS
        x: Any = rng.integers(0, CHARACTERS, (total, LENGTH))
    else:
        shape = (3, 32, 32) if model == "resnet" else (1, 28, 28)
        x = rng.standard_normal((total, *shape), dtype=np.float32)
    dataset = Dataset(
        name="random",
        train_x=x,
        train_y=rng.integers(0, classes, total),
        test_x=x[:1],
        test_y=np.zeros(1, np.int64),
        classes=classes,
        kind="next_character" if model == "transformer" else "classification",
        tokens=model == "transformer",
    )
    component = CATALOG.parts("model")[name]
    offsets = np.arange(clients + 1, dtype=np.int64) * SAMPLES
    partition = Partition(offsets, np.arange(total))
    return SupervisedTask(dataset, partition, component(component.Params(**params)))


class Cohorts:
    """The clients of each round, and the order of their samples, on the GPU."""

    def __init__(self, task: SupervisedTask, clients: int, device: torch.device) -> None:
        self._rng = np.random.default_rng(1)
        self._all, self._clients, self._device = task.clients, clients, device

    def clients(self) -> list[int]:
        """Numbers of the clients of the next round."""
        return sorted(self._rng.choice(self._all, self._clients, replace=False).tolist())

    def batches(self) -> Tensor:
        """Sample numbers (clients, steps, batch)."""
        start = torch.tensor(self.clients(), device=self._device).view(-1, 1) * SAMPLES
        order = torch.rand(self._clients, SAMPLES, device=self._device).argsort(1)
        return (start + order).view(self._clients, STEPS, BATCH)


def fedsim_round(learner: Learner, cohorts: Cohorts) -> Round:
    def run() -> None:
        version = learner.version
        contributions = []
        for client in cohorts.clients():
            number = version * 1000 + client
            learner.hold(version)
            learner.submit(Train(number, client, version, version, version, STEPS, STEPS, 0.0))
            contributions.append(Contribution(number, client, 0))
        learner.submit(Aggregate(version + 1, 0.0, version, tuple(contributions)))
        learner.flush()

    return run


def loop_round(task: SupervisedTask, cohorts: Cohorts, data: Data, autocast: bool) -> Round:
    server: nn.Module = copy.deepcopy(task.module).to(data.device)

    def run() -> None:
        states = []
        for batches in cohorts.batches():
            model = copy.deepcopy(server)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)
            for rows in batches:
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                    loss = functional.cross_entropy(model(data.x[rows]), data.y[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            states.append(list(model.parameters()))
        average(server, states)

    return run


def compiled_round(task: SupervisedTask, cohorts: Cohorts, data: Data, autocast: bool) -> Round:
    server: nn.Module = copy.deepcopy(task.module).to(data.device)
    model = copy.deepcopy(server)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)

    @torch.compile(mode="reduce-overhead")
    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return functional.cross_entropy(model(x), y)

    def run() -> None:
        states = []
        for batches in cohorts.batches():
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), list(server.parameters()))
            for rows in batches:
                optimizer.zero_grad()
                loss_of(data.x[rows], data.y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            states.append([parameter.detach().clone() for parameter in model.parameters()])
        average(server, states)

    return run


@torch.no_grad()
def average(server: nn.Module, states: list[list[Any]]) -> None:
    for target, *values in zip(server.parameters(), *states, strict=True):
        target.copy_(torch.stack(values).mean(0))


def vmap_round(task: SupervisedTask, cohorts: Cohorts, data: Data, autocast: bool) -> Round:
    module = copy.deepcopy(task.module).to(data.device)
    server = {name: value.detach().clone() for name, value in module.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return functional.cross_entropy(functional_call(module, parameters, (x,)), y)

    gradients = vmap(grad(loss))

    def run() -> None:
        batches = cohorts.batches()
        models = {name: value.expand(len(batches), *value.shape) for name, value in server.items()}
        models = {name: value.contiguous() for name, value in models.items()}
        for step in range(STEPS):
            rows = batches[:, step]
            directions = gradients(models, data.x[rows], data.y[rows])
            torch._foreach_add_(
                list(models.values()), [directions[name] for name in models], alpha=-RATE
            )
        for name, value in models.items():
            server[name] = value.mean(0)

    return run


def jax_round(model: str, cohorts: Cohorts, data: Data, autocast: bool) -> Round:
    from benchmarks import gpu_jax

    step = gpu_jax.round_of(model, RATE, half=autocast)
    server = gpu_jax.initial(model, CLASSES, LENGTH, CHARACTERS)
    x, y = gpu_jax.arrays(data.x, data.y)
    holder = [server]

    def run() -> None:
        batches = gpu_jax.arrays(cohorts.batches())[0]
        holder[0] = step(holder[0], x, y, batches)
        gpu_jax.wait(holder[0])

    return run


class Data:
    """Inputs and labels on the GPU."""

    def __init__(self, task: SupervisedTask, device: torch.device) -> None:
        self.device = device
        self.x = task.inputs(task.train_x.to(device), torch.float32)
        self.y = task.train_y.to(device)


def measure(run: Round, seconds: float) -> float:
    """Mean seconds of a round."""
    torch.cuda.synchronize()
    began, rounds = time.perf_counter(), 0
    while rounds < 2 or time.perf_counter() - began < seconds:
        run()
        rounds += 1
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / rounds


def trace(run: Round, rounds: int = 3) -> dict[str, float]:
    """Of fedsim's rounds: share of time with a kernel, kernels per round, waits of the host per round."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(rounds):
            run()
        torch.cuda.synchronize()
        wall_s = time.perf_counter() - began
    kernels = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type.name == "CUDA"
    )
    busy_us, until = 0.0, 0.0
    for start, end in kernels:
        busy_us += max(0.0, end - max(start, until))
        until = max(until, end)
    return {"busy": busy_us / 1e6 / wall_s, "kernels": len(kernels) / rounds}


def rates(autocast: bool) -> dict[str, float]:
    """Operations per second of a large product, and bytes per second of a large copy."""
    dtype = torch.bfloat16 if autocast else torch.float32
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    product = torch.empty_like(a)

    def multiply() -> None:
        torch.mm(a, b, out=product)

    def copy_all() -> None:
        target.copy_(source)

    product_s, copy_s = measure(multiply, 0.2), measure(copy_all, 0.2)
    return {"product": 2 * 8192**3 / product_s, "copy": 2 * source.nbytes / copy_s}


def compare(
    model: str, clients: int, precision: str, seconds: float, ways: list[str]
) -> dict[str, Any]:
    """The row of one table."""
    autocast = precision == "bfloat16"
    task = make_task(model)
    torch.set_float32_matmul_precision("high" if precision != "float32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda")
    data = Data(task, device)
    training: dict[str, Any] = {
        "device": "cuda",
        "autocast": "none" if precision == "float32" else precision,
    }
    learning_kernels.RATE, learning_kernels.BATCH, learning_kernels.STEPS = RATE, BATCH, STEPS
    learner = learning_kernels.make_learner(task, **training)
    kernel = learner.station.kernel
    makers: dict[str, Callable[[Cohorts], Round]] = {
        "fedsim": lambda cohorts: fedsim_round(learner, cohorts),
        "loop": lambda cohorts: loop_round(task, cohorts, data, autocast),
        "compiled": lambda cohorts: compiled_round(task, cohorts, data, autocast),
        "vmap": lambda cohorts: vmap_round(task, cohorts, data, autocast),
        "jax": lambda cohorts: jax_round(model, cohorts, data, autocast),
    }
    seconds_of: dict[str, float] = {}
    scale: dict[str, float] = {}
    failures: dict[str, str] = {}
    rounds: dict[str, Round] = {}
    memory: dict[str, float] = {}
    warm_s: dict[str, float] = {}
    for way in ways:
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        few = min(clients, MOST_SEQUENTIAL) if way in SEQUENTIAL else clients
        scale[way] = clients / few
        try:
            rounds[way] = makers[way](Cohorts(task, few, device))
            for _ in range(4 if way == "fedsim" else 2):
                rounds[way]()
            torch.cuda.synchronize()
        except Exception as error:
            rounds.pop(way, None)
            failures[way] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
            continue
        warm_s[way] = time.perf_counter() - began
        memory[way] = torch.cuda.max_memory_allocated() / 2**30
    for _ in range(2):
        for way, run in rounds.items():
            seconds_s = scale[way] * measure(run, seconds)
            seconds_of[way] = min(seconds_of.get(way, np.inf), seconds_s)
    if "fedsim" not in rounds:
        return {"model": model, "clients": clients, "warm_s": warm_s, "failed": failures}
    ceiling = rates(autocast)
    learner_trace = trace(rounds["fedsim"])
    samples = clients * STEPS * BATCH
    work = samples * int(task.flops_per_sample() or 0)
    moved = 8 * clients * STEPS * task.layout.size + samples * data.x[0].nbytes
    result = {
        "model": model,
        "clients": clients,
        "precision": precision,
        "parameters": task.layout.size,
        "kernel": kernel.name,
        "notes": dict(kernel.notes()),
        "ms": {way: round(1000 * value, 3) for way, value in seconds_of.items()},
        "failed": failures,
        "warm_s": {way: round(value, 1) for way, value in warm_s.items()},
        "samples_per_s": round(samples / seconds_of["fedsim"]),
        "of_product": round(work / seconds_of["fedsim"] / ceiling["product"], 4),
        "of_copy": round(moved / seconds_of["fedsim"] / ceiling["copy"], 4),
        "peak_gib": {way: round(value, 2) for way, value in memory.items()},
        "product_tflops": round(ceiling["product"] / 1e12, 1),
        "copy_gbps": round(ceiling["copy"] / 1e9),
        **{name: round(value, 3) for name, value in learner_trace.items()},
    }
    learner.stop()
    return result


def asynchronous(model: str, precision: str) -> dict[str, Any]:
    """Local steps per second of synchronous rounds of 50 clients, and of asynchronous servers."""
    task = make_task(model, clients=IN_FLIGHT * 5 // 4)
    training: dict[str, Any] = {"device": "cuda", "autocast": precision}
    learning_kernels.RATE, learning_kernels.BATCH, learning_kernels.STEPS = RATE, BATCH, STEPS
    learner = learning_kernels.make_learner(task, **training)
    run = fedsim_round(learner, Cohorts(task, 50, torch.device("cuda")))
    for _ in range(5):
        run()
    rates = {"synchronous": 50 * STEPS / measure(run, 1.0)}
    learner.stop()
    for name, method, buffer in (("fedbuff", FedBuff, 10), ("fedasync", FedAsync, 1)):
        calls = make_timeline(task.clients, IN_FLIGHT, UPDATES, buffer)
        for _ in range(2):
            _, seconds = with_fedsim(task, calls, method=method, params=method.Params(), **training)
        rates[name] = STEPS * (UPDATES // buffer * buffer) / seconds
    return {
        "model": model,
        "precision": precision,
        "in_flight": IN_FLIGHT,
        "steps_per_s": {name: round(rate) for name, rate in rates.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--precision", nargs="+", default=["tf32", "bfloat16"])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--json", type=Path, help="append each row as a line of JSON")
    options = parser.parse_args()
    for model, precision in itertools.product(options.model, options.precision):
        for clients in [0] if options.asynchronous else options.clients:
            if options.asynchronous:
                row = asynchronous(model, precision)
            else:
                row = compare(model, clients, precision, options.seconds, options.ways)
            print(json.dumps(row), flush=True)
            if options.json:
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
