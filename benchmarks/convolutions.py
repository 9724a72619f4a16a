"""A convolutional module on a CPU: fedsim against a hand-written loop over clients with channels-last images.

    python benchmarks/convolutions.py [--repeats 15] [--threads 1]

A round is local training of 10 clients (batch 32, 10 steps, SGD) of the LeNet-like ``cnn``, and their mean. The loop
has one module whose weights lie channels last; it gathers the batches of a client at once, takes steps in place, and
adds up the losses of each client. It starts from fedsim's model, because the time of a backward pass depends on the
values. Both run in one process, in turn; a figure is the median of the processor time of a round, and the ratio that of
the ratios of rounds in turn, with their quartiles. It must be at most 1.03.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.learning_kernels import BATCH, RATE, STEPS, fedsim_round, make_learner, make_task
from fedsim.tasks.kinds.supervised import SupervisedTask

CLIENTS = 10
LIMIT = 1.03


def by_hand(task: SupervisedTask, model: torch.Tensor) -> Callable[[], None]:
    """A round of the loop, the first from ``model`` (P,); the images are converted once, as fedsim does."""
    server: Any = copy.deepcopy(task.module)
    server.load_state_dict(task.layout.views(model))
    server.to(memory_format=torch.channels_last)
    module = copy.deepcopy(server)
    images = task.inputs(task.train_x, torch.float32).to(memory_format=torch.channels_last)
    labels = task.train_y
    weights, received = list(module.parameters()), list(server.parameters())
    sums = [torch.empty_like(weight) for weight in weights]
    losses = torch.zeros(task.clients)

    @torch.no_grad()
    def run() -> None:
        torch._foreach_zero_([losses, *sums])
        for client in range(task.clients):
            rows = torch.from_numpy(task.rows[task.offsets[client] : task.offsets[client + 1]])
            rows = rows[torch.randperm(len(rows))[: STEPS * BATCH]]
            batches = zip(
                torch.split(images[rows], BATCH), torch.split(labels[rows], BATCH), strict=True
            )
            torch._foreach_copy_(weights, received)
            total = losses[client]
            for inputs, targets in batches:
                with torch.enable_grad():
                    loss = functional.cross_entropy(module(inputs), targets)
                torch._foreach_add_(weights, torch.autograd.grad(loss, weights), alpha=-RATE)
                total += loss
            torch._foreach_add_(sums, weights, alpha=1 / task.clients)
        torch._foreach_copy_(received, sums)

    return run


def main() -> None:
    """Measure and print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    task = make_task("cnn", CLIENTS)
    learner = make_learner(task, threads=arguments.threads)
    rounds = {"fedsim": fedsim_round(learner), "by hand": by_hand(task, learner.server["model"])}
    seconds: dict[str, list[float]] = {name: [] for name in rounds}
    for repeat in range(arguments.repeats + 1):
        for name, run in rounds.items():
            began = time.process_time()
            run()
            if repeat:
                seconds[name].append(time.process_time() - began)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, each in seconds.items():
        print(f"{name:8} median {1000 * medians[name]:6.1f} ms, least {1000 * min(each):6.1f} ms")
    ratios = [one / other for one, other in zip(*seconds.values(), strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    print(f"ratio {ratio:.3f}, quartiles {low:.3f} and {high:.3f} (at most {LIMIT})")


if __name__ == "__main__":
    main()
