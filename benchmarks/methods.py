"""The cost of a method's own arithmetic: 12 methods on 3 models, processor milliseconds per round.

    python -m benchmarks.methods [--methods fedavg fedprox ...] [--models linear mlp cnn] [--repeats 5]

A round of the common work: 10 clients of 100 take 10 steps of plain SGD on batches of 20 (28 x 28 images), and the
server aggregates; one worker. Repeats are interleaved, and the median of each counts. Every figure is followed by its
ratio to ``fedavg``. Those with a correction of the local step must stay within 1.2; others may do twice the steps
(``ditto``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.learning_kernels import make_learner
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.partition import Partition
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train

CLIENTS, SAMPLES, BATCH, STEPS, COHORT = 100, 200, 20, 10, 10
LIMIT = 1.2
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "linear": ("logistic_regression", {}),
    "mlp": ("mlp", {"hidden": [200, 200]}),
    "cnn": ("fedcompass_cnn", {}),
}
METHODS = (
    "fedavg",
    "fedprox",
    "scaffold",
    "feddyn",
    "fedsum",
    "fedsum_b",
    "mifa",
    "fedvarp",
    "fednova",
    "fedadam",
    "fedavgm",
    "ditto",
)
LIMITED = ("fedprox", "scaffold", "feddyn", "fedsum")


def common_task(model: str) -> SupervisedTask:
    """Random images; 200 per client."""
    rng = np.random.default_rng(0)
    total = CLIENTS * SAMPLES
    dataset = Dataset(
        "random",
        rng.standard_normal((total, 1, 28, 28), dtype=np.float32),
        rng.integers(0, 10, total),
        np.zeros((1, 1, 28, 28), np.float32),
        np.zeros(1, np.int64),
        10,
    )
    name, params = MODELS[model]
    component = CATALOG.parts("model")[name]
    partition = Partition(np.arange(CLIENTS + 1) * SAMPLES, np.arange(total))
    return SupervisedTask(dataset, partition, component(component.Params(**params)))


def rounds_of(task: SupervisedTask, name: str) -> Callable[[], None]:
    """A function that trains one cohort and aggregates its updates."""
    method = CATALOG.parts("method")[name]
    learner = make_learner(
        task, method, method.Params(), device="cpu", threads=1, batch_size=BATCH, local_steps=STEPS
    )
    dispatch = 0

    def run() -> None:
        nonlocal dispatch
        version, contributions = learner.version, []
        for client in range(COHORT):
            number, dispatch = dispatch, dispatch + 1
            learner.hold(version)
            learner.submit(Train(number, client, version, version, version, STEPS, STEPS, 0.0))
            contributions.append(Contribution(number, client, 0))
        learner.submit(Aggregate(version + 1, 0.0, version, tuple(contributions)))
        learner.flush()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    names = dict.fromkeys(("fedavg", *options.methods))
    missed = []
    for model in options.models:
        task = common_task(model)
        runs = {name: rounds_of(task, name) for name in names}
        for run in runs.values():
            run()
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(options.repeats):
            for name, run in runs.items():
                start = time.process_time()
                run()
                times[name].append(time.process_time() - start)
        plain = statistics.median(times["fedavg"])
        for name, seconds in times.items():
            ratio = statistics.median(seconds) / plain
            print(f"{model:7} {name:10} {1000 * ratio * plain:7.1f} ms {ratio:5.2f}", flush=True)
            if name in LIMITED and ratio > LIMIT:
                missed.append(f"{name} on {model}")
    print(f"within {LIMIT}: " + (f"all but {', '.join(missed)}" if missed else "all"))


if __name__ == "__main__":
    main()
