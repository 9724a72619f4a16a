"""The common work as every adapter sees it: the clients' data, and the report that it writes."""

from __future__ import annotations

import argparse
import json
import os
import sys
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
    """The method, the model, the data and the number of rounds.

    Attributes:
        method: fedavg, fedbuff or fedasync.
        model: linear, mlp or cnn.
        rounds: of 10 updates, one local epoch each. With fedavg, 10 clients drawn at random, synchronously; otherwise
            10 clients are always busy, and a round is one version of fedbuff or ten versions of fedasync.
        x, y: images (clients, samples, 1, 28, 28) and labels (clients, samples) of the clients.
        test_x, test_y: test images and labels.
        data: the .npz file they come from.
        folder: the adapter's working folder.
        report: the file that :meth:`hand_in` writes.
    """

    method: str
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
        self,
        *,
        steps: int,
        parameters: int,
        accuracy: float,
        packages: list[str],
        more_cpu_s: float = 0.0,
    ) -> None:
        """Write the facts that show that it was the common work.

        Args:
            steps: local steps of all clients in all rounds, as the peer's training loop did them.
            parameters: parameters of the model.
            accuracy: accuracy of the last global model on the test images.
            packages: packages whose versions are reported.
            more_cpu_s: processor time of processes that no parent waits for, which the system counts nowhere.
        """
        values = {
            "steps": steps,
            "parameters": parameters,
            "accuracy": accuracy,
            "more_cpu_s": more_cpu_s,
            "versions": {package: version(package) for package in packages},
        }
        self.report.write_text(json.dumps(values), encoding="utf-8")


def read_work() -> Work:
    """The work that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--method", choices=("fedavg", "fedbuff", "fedasync"), required=True)
    parser.add_argument("--model", choices=("linear", "mlp", "cnn"), required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args()
    # Some peers read the command line themselves.
    del sys.argv[1:]
    return Work(
        options.method,
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
    # Clients lie one after the other, all with as many samples.
    own_x, own_y = x[~test].reshape(clients, -1, *x.shape[1:]), y[~test].reshape(clients, -1)
    return own_x, own_y, x[test], y[test]
