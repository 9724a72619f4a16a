"""One run with a model of 10 M parameters: two distributed workers against two threads.

    python -m benchmarks.distributed [--updates 64] [--hidden 3100]

Per round: wall seconds; of the process that writes the run, processor seconds, bytes of tensors that enter or leave it,
and peak memory. There are two processes of one thread, or one of two threads. Rounds are those beyond the first ones of
a shorter run, so start and end do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

import fedsim
from fedsim.learning.workers.distributed import Ranks

_ROUNDS = (1, 4)
_KINDS: dict[str, dict[str, Any]] = {
    "distributed": {"name": "distributed"},
    "threads": {"name": "threads"},
}


def _scenario(kind: str, rounds: int, updates: int, hidden: int) -> dict[str, Any]:
    threads = 2 if kind == "threads" else 1
    return {
        "task": {
            "dataset": "digits",
            "partition": {"name": "iid", "clients": updates},
            "model": {"name": "mlp", "hidden": [hidden, hidden]},
        },
        "training": {
            "optimizer": {"name": "sgd", "lr": 0.01},
            "batch_size": 8,
            "local_steps": 2,
            "threads": threads,
            "workers": dict(_KINDS[kind]),
        },
        "devices": {
            "availability": "always",
            "compute": {"name": "lognormal", "median": "1s", "sigma": 0.3},
            "network": {"name": "static", "down": "100Mbps", "up": "100Mbps"},
        },
        "server": {"selection": {"name": "uniform", "cohort": updates}, "schedule": "sync"},
        "stop": {"rounds": rounds},
        "evaluation": {"every_rounds": 100},
        "ignore": ["seldom-evaluated"],
    }


def _run(kind: str, rounds: int, updates: int, hidden: int, folder: Path) -> None:
    """Run in this process, and print its figures."""
    moved = 0

    send = Ranks._sent

    def sent(*arguments: Any) -> Tensor:
        nonlocal moved
        tensor = send(*arguments)
        moved += tensor.nbytes
        return tensor

    Ranks._sent = sent  # type: ignore[method-assign, assignment]
    fedsim.run(_scenario(kind, rounds, updates, hidden), folder, overwrite=True)
    if not int(os.environ.get("RANK", 0)):
        wall_s = json.loads((folder / "run.json").read_text())["wall_s"]
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = used.ru_utime + used.ru_stime
        figures = {"wall_s": wall_s, "cpu_s": cpu_s, "bytes": moved, "peak": used.ru_maxrss * 1024}
        print(json.dumps(figures))


def _measured(kind: str, rounds: int, updates: int, hidden: int, folder: Path) -> dict[str, Any]:
    """The figures of a run in new processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    arguments = [kind, str(rounds), str(updates), str(hidden), str(folder)]
    command = [sys.executable, "-m", "benchmarks.distributed", "--one", *arguments]
    count = 2 if kind == "distributed" else 1
    processes = []
    for rank in range(count):
        of_rank = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
        address = {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        variables = {**os.environ, **(of_rank | address if count > 1 else {})}
        processes.append(
            subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
        )
    outputs = [process.communicate()[0] for process in processes]
    figures: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return figures


def main() -> None:
    """Measure all types of workers, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=3100)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, rounds, updates, hidden, folder = given.one
        _run(kind, int(rounds), int(updates), int(hidden), Path(folder))
        return
    print("| workers | wall s | processor s | GB moved | peak GB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in _KINDS:
            few, many = (
                _measured(kind, rounds, given.updates, given.hidden, Path(folder) / kind)
                for rounds in _ROUNDS
            )
            rounds = _ROUNDS[1] - _ROUNDS[0]
            wall_s, cpu_s, moved = (
                (many[name] - few[name]) / rounds for name in ("wall_s", "cpu_s", "bytes")
            )
            peak = many["peak"] / 1e9
            print(f"| {kind} | {wall_s:.1f} | {cpu_s:.1f} | {moved / 1e9:.2f} | {peak:.1f} |")


if __name__ == "__main__":
    main()
