"""Peak memory of 1,000 clients of a 1.2 M-parameter model that keep a control variate each.

    python -m benchmarks.learning_memory [--clients 1000] [--rounds 2]

Prints the process's largest resident set after each round. Rows over the budgets go to a temporary file (``TMPDIR``).
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Mapping, Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from benchmarks.learning_kernels import make_learner
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    ServerState,
    Step,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
)
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.models.mlp import Mlp
from fedsim.tasks.partition import Partition
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train

SAMPLES, STEPS = 20, 2
LIMIT_GB = 8.0


class ControlVariates(Method):
    """SCAFFOLD's traffic and memory: two vectors up, one kept by every client."""

    name = "control_variates"

    def download(self) -> Sequence[Vector]:
        """Model and server control variate."""
        size = self.context.layout.size
        return (Vector("model", size), Vector("control", size))

    def upload(self) -> Sequence[Vector]:
        """Changes of model and control variate."""
        size = self.context.layout.size
        return (Vector("delta", size), Vector("change", size))

    def memories(self) -> Mapping[str, Memory]:
        """The client's control variate."""
        return {"control": Memory(self.context.layout.size)}

    def initial_state(self, model: torch.Tensor) -> ServerState:
        """Control variates start at zero."""
        return {"model": model, "control": torch.zeros_like(model)}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Gradients corrected by both control variates; the new one is the mean gradient."""
        client_control, control, start = (
            cohort.memory["control"],
            cohort.down["control"],
            cohort.down["model"],
        )

        def rule(step: Step) -> None:
            step.gradient.add_(control[step.rows]).sub_(client_control[step.rows])

        trained = trainer.run(cohort, start, rule=rule, collect=("mean_gradient",))
        new = trained.mean_gradient
        assert new is not None
        vectors = {"delta": trained.model.sub_(start), "change": new - client_control}
        return LocalUpdate(vectors, trained.loss, {"control": new})

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """Means of both changes."""
        weights = averaging_weights(updates, "uniform")
        share = np.full(len(updates), 1 / self.context.clients)
        return {
            "model": server["model"] + updates.weighted_sum("delta", weights),
            "control": server["control"] + updates.weighted_sum("change", share),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    total = options.clients * SAMPLES
    dataset = Dataset(
        name="random",
        train_x=rng.normal(size=(total, 784)).astype(np.float32),
        train_y=rng.integers(0, 10, total),
        test_x=np.zeros((1, 784), np.float32),
        test_y=np.zeros(1, np.int64),
        classes=10,
    )
    offsets = np.arange(options.clients + 1, dtype=np.int64) * SAMPLES
    model = Mlp(Mlp.Params(hidden=[800, 700]))
    task = SupervisedTask(dataset, Partition(offsets, np.arange(total)), model)
    learner = make_learner(
        task, ControlVariates, None, batch_size=10, local_steps=STEPS, device="cpu"
    )
    print(
        f"{options.clients} clients, {task.parameters:,} parameters; {_peak_gb():.2f} GB before training"
    )
    for version in range(options.rounds):
        start = time.perf_counter()
        contributions = []
        for client in range(task.clients):
            number = version * task.clients + client
            learner.hold(version)
            learner.submit(Train(number, client, version, version, version, STEPS, STEPS, 0.0))
            contributions.append(Contribution(number, client, 0))
        learner.submit(Aggregate(version + 1, 0.0, version, tuple(contributions)))
        learner.flush()
        seconds = time.perf_counter() - start
        print(f"round {version + 1}: {seconds:.1f} s, peak {_peak_gb():.2f} GB", flush=True)
    print(f"limit {LIMIT_GB:g} GB: {'kept' if _peak_gb() < LIMIT_GB else 'missed'}")


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main()
