"""``fedsim compare`` of 12 small runs, compared with importing pandas and matplotlib.

    python -m benchmarks.compare [--repeat 5]

Two methods on two data splits with three seeds are run once; then whole processes are timed in turn, and the shortest
time of each counts. The limit is twice the time of the imports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fedsim

LIMIT = 2.0
SCENARIO = {
    "task": {
        "dataset": {"name": "digits"},
        "partition": {"name": "dirichlet", "alpha": 5.0, "clients": 12},
        "model": {"name": "logistic_regression"},
    },
    "training": {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 5, "batch_size": 16},
    "devices": {
        "compute": {"name": "lognormal", "median": "0.2s", "jitter": {"cv": 0.3}},
        "network": {"name": "static", "latency": "40ms", "down": "1Mbps", "up": "0.5Mbps"},
    },
    "server": {"selection": {"name": "uniform", "cohort": 4}},
    "stop": {"simulated_time": "30s"},
    "evaluation": {"every": "3s"},
    "sweep": {
        "grid": {
            "task.partition.alpha": [5.0, 0.2],
            "server.method": [{"name": "fedavg"}, {"name": "fedbuff"}],
        },
        "seeds": [0, 1, 2],
    },
}


def seconds(*arguments: str | Path) -> float:
    """Wall time of a Python process."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fedsim.sweep(SCENARIO, folder / "sweep", jobs=1)
        compare = ("-m", "fedsim", "compare", folder / "sweep", "-o", folder / "comparison")
        imports = ("-c", "import pandas, matplotlib.pyplot")
        times = [(seconds(*compare), seconds(*imports)) for _ in range(options.repeat)]
    compared, imported = map(min, zip(*times, strict=True))
    print(f"fedsim compare {compared:.2f} s, pandas and matplotlib {imported:.2f} s")
    print(f"{compared / imported:.2f} times (limit {LIMIT:g})")


if __name__ == "__main__":
    main()
