"""bfloat16 products on a CPU compared with float32: processor time per round, and accuracy over seeds.

    python -m benchmarks.learning_precision [--models cnn mlp] [--seeds 3] [--rounds 25]

The common work: 10 of 100 clients per round, 10 steps of SGD on batches of 20 (28 x 28 images). ``cnn`` is that of
``benchmarks/peers.py``, ``mlp`` has two hidden layers of 1,024. The time of a round is that of local training without
evaluation: that of a run of all rounds minus that of a run of one. Accuracies are those of the last model; compare
the difference between the precisions of one seed with that between seeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import fedsim

torch.set_num_threads(1)
MODELS = {"cnn": {"name": "fedcompass_cnn"}, "mlp": {"name": "mlp", "hidden": [1024, 1024]}}
PRECISIONS = {"float32": "none", "bfloat16": "bfloat16"}


def run(model: str, precision: str, seed: int, rounds: int) -> tuple[float, float]:
    """Processor seconds of a run, and the accuracy of its last model."""
    scenario = {
        "name": "precision",
        "seed": seed,
        "task": {
            "dataset": {"name": "common_work"},
            "partition": {"name": "natural"},
            "model": MODELS[model],
        },
        "training": {
            "optimizer": {"name": "sgd", "lr": 0.1},
            "batch_size": 20,
            "local_epochs": 1,
            "device": "cpu",
            "threads": 1,
            "autocast": PRECISIONS[precision],
        },
        "devices": {
            "compute": {"name": "lognormal", "median": "0.1s"},
            "network": {"down": "20Mbps", "up": "5Mbps"},
        },
        "server": {
            "method": {"name": "fedavg"},
            "selection": {"name": "uniform", "cohort": 10},
            "schedule": {"name": "sync"},
        },
        "stop": {"rounds": rounds},
        "evaluation": {"every": "1000d"},
    }
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        done = fedsim.run(scenario, folder, overwrite=True)
        return time.process_time() - start, float(done.metrics["accuracy"].iloc[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    for model in options.models:
        run(model, "float32", 0, 1)
        times: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
        scores: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
        for seed in range(options.seeds):
            for precision in PRECISIONS:
                first, _ = run(model, precision, seed, 1)
                whole, score = run(model, precision, seed, options.rounds)
                times[precision].append((whole - first) / (options.rounds - 1))
                scores[precision].append(score)
        lowest = {precision: min(each) for precision, each in times.items()}
        for precision in PRECISIONS:
            print(
                f"{model:4} {precision:9} {1000 * lowest[precision]:7.1f} ms per round, "
                f"{lowest['float32'] / lowest[precision]:.2f} x as fast; accuracies "
                + " ".join(f"{score:.3f}" for score in scores[precision])
                + (
                    f", standard deviation {statistics.stdev(scores[precision]):.3f}"
                    if options.seeds > 1
                    else ""
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
