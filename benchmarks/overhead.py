"""The time that a training run spends outside its tensor work: time plane, instructions, logging, the run folder.

    python benchmarks/overhead.py [--only NAME ...]

Stated limit: 5% of a run's processor time, from its start to its complete folder, without data and imports. Tensor
work is local training (with the drawing of batches), aggregation and evaluation; the rest is the time plane, the
learning plane's bookkeeping, the logs, the figures and the report. There is one worker thread, so that one clock
measures everything. In the case of a hundred clients at work, only about forty are online, so that every draw finds
fewer than it requests. Compressing an upload of 1.2 million numbers must take at most a tenth of its local training.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedsim
from fedsim.learning.evaluation import SupervisedEvaluator
from fedsim.learning.workers.station import Worker
from fedsim.methods.compression import Compressed
from fedsim.methods.fedavg import FedAvg
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.datasets.generated import CommonWork
from fedsim.tasks.datasets.uci import Digits
from fedsim.tasks.models.cnn import Conv, Linear, SequentialModel

LIMIT = 0.05
TRACES = Path(__file__).resolve().parents[1] / "traces"
# 200 samples per client, 10 steps of SGD on batches of 20.
IMAGES: dict[str, Any] = {
    "task": {
        "dataset": {"name": "common_work", "clients": 400},
        "partition": {"name": "natural"},
        "model": {"name": "mlp", "hidden": [200, 200]},
    },
    "training": {"batch_size": 20, "local_epochs": 1, "device": "cpu", "threads": 1},
}
# About 7 samples per client, 20 epochs on batches of 8: small pieces of work.
DIGITS = {
    "task": {
        "dataset": {"name": "digits"},
        "partition": {"name": "dirichlet", "alpha": 0.2, "clients": 200},
        "model": {"name": "mlp", "hidden": [400, 200]},
    },
    "training": {"batch_size": 8, "local_epochs": 20, "device": "cpu", "threads": 1},
}
DEVICES: dict[str, Any] = {
    "trace": str(TRACES / "phones_mostly_on_week"),
    "compute": {"reference_step": "1s", "jitter": {"cv": 0.1}},
    "network": {"name": "static", "latency": "40ms"},
}
SYNC: dict[str, Any] = {
    "method": {"name": "fedavg"},
    "selection": {"name": "uniform", "cohort": 50},
    "schedule": {"name": "sync", "deadline": "10min", "over_selection": 1.3, "pause": "10min"},
}
BUFFERED: dict[str, dict[str, Any]] = {
    "method": {"name": "fedbuff"},
    "schedule": {"name": "buffered", "buffer_size": 10, "concurrency": 50},
}
FEW = {**DEVICES, "trace": str(TRACES / "phones_week")}
HUNDRED_WANTED = {**BUFFERED, "schedule": {**BUFFERED["schedule"], "concurrency": 100}}
FEEDBACK = {**SYNC, "compression": {"up": {"name": "topk", "share": 0.01}}}
HALVES = {**SYNC, "submodels": {"name": "heterofl", "rates": [1, 0.5], "by": "speed"}}
# 1.2 million parameters.
LARGE: dict[str, Any] = {
    **IMAGES,
    "task": {**IMAGES["task"], "model": {"name": "mlp", "hidden": [800, 650]}},
}
# The network of federated EMNIST (Reddi et al., Adaptive Federated Optimization, ICLR 2021, appendix C) on ten classes
# and without its dropout: 1,199,882 parameters. As there, about 200 samples per client, one epoch, batches of 20.
PUBLISHED = {
    **IMAGES,
    "task": {**IMAGES["task"], "model": f"{__file__}:EmnistCnn"},
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "cast": {},
    "qsgd": {},
    "eden": {},
    "topk": {"share": 0.01},
    "randk": {"share": 0.01},
    "signsgd": {},
    "powersgd": {"rank": 2},
    "sparseloco": {"share": 0.01},
}
COMPRESSED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]] = {
    f"{name}{after}": (
        work,
        DEVICES,
        {**SYNC, "compression": {"up": {"name": name, **params}}},
        rounds,
    )
    for after, work, rounds in (("", LARGE, 2), (", EMNIST", PUBLISHED, 1))
    for name, params in PARAMETERS.items()
}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]] = {
    "images, rounds of 50": (IMAGES, DEVICES, SYNC, 100),
    "images, buffered, 50 at work": (IMAGES, DEVICES, BUFFERED, 500),
    "images, buffered, 100 wanted": (IMAGES, FEW, HUNDRED_WANTED, 500),
    "images, error feedback": (IMAGES, DEVICES, FEEDBACK, 100),
    "images, submodels": (IMAGES, DEVICES, HALVES, 100),
    "digits, rounds of 50": (DIGITS, DEVICES, SYNC, 100),
    "digits, buffered, 50 at work": (DIGITS, DEVICES, BUFFERED, 500),
} | COMPRESSED
LIMIT_OF_COMPRESSION = 0.1


class EmnistCnn(SequentialModel):
    """conv 3x3 (32) - ReLU - conv 3x3 (64) - ReLU - pool 2 - linear 128 - ReLU - linear; no padding."""

    least = 5
    hidden_layers = (
        *(Conv(32, 3), "relu"),
        *(Conv(64, 3), "pool", "relu"),
        *("flatten", Linear(128), "relu"),
    )


class Clock:
    """Processor seconds inside the functions that it wraps."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}

    def wrap(self, owner: type, name: str, activity: str) -> None:
        """Count the time inside ``owner.name`` as that of ``part``."""
        plain: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin_s = time.thread_time()
            try:
                return plain(*args, **kwargs)
            finally:
                self.spent_s[activity] = (
                    self.spent_s.get(activity, 0.0) + time.thread_time() - begin_s
                )

        setattr(owner, name, timed)


def scenario(
    work: dict[str, Any], devices: dict[str, Any], server: dict[str, Any], rounds: int
) -> dict[str, Any]:
    return {
        "name": "overhead",
        **work,
        "devices": devices,
        "server": server,
        "stop": {"rounds": rounds},
        "evaluation": {"every": "1h"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS), metavar="NAME")
    only = parser.parse_args().only
    clock = Clock()
    clock.wrap(Worker, "train", "training")
    clock.wrap(FedAvg, "aggregate", "aggregation")
    clock.wrap(SupervisedEvaluator, "measure", "evaluation")
    clock.wrap(Compressed, "local_update", "compressed")
    clock.wrap(FedAvg, "local_update", "local")
    # Images are made when they are first looked up.
    for owner, name in ((CommonWork, "load"), (Digits, "load"), (Dataset, "__getattr__")):
        clock.wrap(owner, name, "data")
    activities = ("training", "aggregation", "evaluation")
    print(
        f"{'run':32} {'CPU s':>7} {' '.join(f'{activity:>11}' for activity in activities)} {'rest':>7}"
    )
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name in only:
            work, devices, server, rounds = RUNS[name]
            # For imports during a run.
            fedsim.run(scenario(work, devices, server, 1), f"{folder}/warm", overwrite=True)
            clock.spent_s.clear()
            begin_s = time.process_time()
            fedsim.run(scenario(work, devices, server, rounds), f"{folder}/run", overwrite=True)
            total_s = time.process_time() - begin_s - clock.spent_s["data"]
            shares = [clock.spent_s[activity] / total_s for activity in activities]
            rest = 1 - sum(shares)
            if name in COMPRESSED:
                local_s = clock.spent_s["local"]
                compressing_s = clock.spent_s["compressed"] - local_s
                share = compressing_s / local_s
                verdict = "kept" if share <= LIMIT_OF_COMPRESSION else "MISSED"
                print(
                    f"{name:32} compression {compressing_s:.2f} s, {share:.1%} of {local_s:.2f} s of local training, "
                    f"limit {LIMIT_OF_COMPRESSION:.0%}: {verdict}",
                    flush=True,
                )
                continue
            worst = max(worst, rest)
            columns = " ".join(f"{share:11.1%}" for share in shares)
            print(f"{name:32} {total_s:7.1f} {columns} {rest:7.1%}", flush=True)
    print(f"largest rest {worst:.1%}, limit {LIMIT:.0%}: {'kept' if worst <= LIMIT else 'MISSED'}")


if __name__ == "__main__":
    main()
