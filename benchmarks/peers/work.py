"""The common work as every adapter sees it: the clients' data, a stopwatch, and the line that is returned."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

COHORT, BATCH, RATE = 10, 20, 0.1

# Number of the machine's cores that the work may use.
CORES = int(os.environ["OMP_NUM_THREADS"])


@dataclass(frozen=True, slots=True)
class Work:
    """The model, the data and the number of rounds.

    Attributes:
        model: linear, mlp or cnn.
        rounds: synchronous rounds of 10 clients drawn at random, one local epoch each.
        x, y: images (clients, samples, 1, 28, 28) and labels (clients, samples) of the clients.
        test_x, test_y: test images and labels.
        data: the .npz file they come from.
        folder: the adapter's own folder for whatever it writes.
        report: the file that :meth:`hand_in` writes.
    """

    model: str
    rounds: int
    x: FloatArray
    y: IntArray
    test_x: FloatArray
    test_y: IntArray
    data: Path
    folder: Path
    report: Path

    def hand_in(
        self, watch: StopWatch, *, steps: int, parameters: int, accuracy: float, packages: list[str]
    ) -> None:
        """Write the measurements.

        Args:
            watch: marked at the end of every round.
            steps: local steps of all clients in all rounds, as the peer's own training loop did them.
            parameters: parameters of the model.
            accuracy: accuracy of the last global model on the test images.
            packages: packages whose versions are reported.
        """
        if len(watch.cpu_s) != self.rounds:
            raise SystemExit(f"{len(watch.cpu_s)} rounds were timed in place of {self.rounds}")
        write_report(
            self.report,
            startup_cpu_s=watch.cpu_s[0],
            startup_ends_s=watch.wall_s[0],
            round_cpu_s=(watch.cpu_s[-1] - watch.cpu_s[0]) / (self.rounds - 1),
            round_wall_s=(watch.wall_s[-1] - watch.wall_s[0]) / (self.rounds - 1),
            steps=steps,
            parameters=parameters,
            accuracy=accuracy,
            versions={package: version(package) for package in packages},
        )


def read_work() -> Work:
    """The work that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", choices=("linear", "mlp", "cnn"), required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args()
    # Some peers read the command line themselves.
    del sys.argv[1:]
    return Work(
        options.model,
        options.rounds,
        *read_arrays(options.data),
        options.data,
        options.folder,
        options.report,
    )


def read_arrays(data: Path) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Images and labels of the clients, and of the test set."""
    arrays = np.load(data)
    x, y, test = arrays["x"], arrays["y"], arrays["is_test"]
    clients = int(arrays["group"][~test].max()) + 1
    # One client after the other, all with equally many samples.
    own_x, own_y = x[~test].reshape(clients, -1, *x.shape[1:]), y[~test].reshape(clients, -1)
    return own_x, own_y, x[test], y[test]


class StopWatch:
    """Processor seconds since the process began, and wall-clock seconds, at the end of every round.

    Args:
        cpu_s: returns the processor seconds; those of this process by default.
    """

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._read = cpu_s
        self.cpu_s: list[float] = []
        self.wall_s: list[float] = []

    def mark(self) -> None:
        """Record the end of a round."""
        self.cpu_s.append(self._read())
        self.wall_s.append(time.time())


def write_report(path: Path, **values: float | Mapping[str, str]) -> None:
    """The line that the benchmark reads when the adapter has ended."""
    path.write_text(json.dumps(values), encoding="utf-8")
