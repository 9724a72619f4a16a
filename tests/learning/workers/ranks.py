"""Cases that are executed in all ranks of a run."""

import multiprocessing
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fedsim.learning.workers import station
from fedsim.learning.workers.distributed import Ranks
from fedsim.processes.launch import Launch
from fedsim.sweeps import local
from tests.learning.timelines import Rows, buffered, checkpoints_of, execute, rounds
from tests.learning.workers.cases import CASES, Case, asynchronous, mlp, options_of, synchronous

# What a case leaves: server state and memories, and metrics.
Result = tuple[dict[str, Tensor], Rows]
RANK_CASES: dict[str, Case] = {
    **CASES,
    "server memories": (mlp, "mifa", {}, {}, synchronous),
    "shared memories": (mlp, "fedawe", {}, {}, synchronous),
    "all memories": (mlp, "remembering", {}, {}, partial(buffered, 20)),
    "median": (mlp, "median", {}, {}, partial(rounds, 2, list(range(8)))),
    "sums": (mlp, "fedavg", {}, {}, partial(rounds, 2, list(range(8)))),
    "eager": (mlp, "scaffold", {}, {"verify": "eager"}, synchronous),
    "double": (mlp, "scaffold", {}, {"dtype": "float64"}, asynchronous),
}
CONTINUED = "all memories"
"""The case whose second checkpoint is kept."""
FEW: dict[str, Any] = {"max_pending": 6}


def executed(name: str, ranks: Ranks | None) -> Result:
    # As many groups as ranks, although they are small.
    with patch.object(station, "_SHARE_FLOPS", 1):
        return execute(*_played(name), **_options(name), ranks=ranks)


def checkpoints(ranks: Ranks | None) -> list[Any]:
    return checkpoints_of(*_played(CONTINUED), **_options(CONTINUED), ranks=ranks)


def continued(checkpoint: Any, ranks: Ranks) -> Result:
    options = _options(CONTINUED)
    return execute(*_played(CONTINUED), **options, ranks=ranks, checkpoint=checkpoint)


def _played(name: str) -> Any:
    case = RANK_CASES[name]
    return case[0](), case[4]()


def _options(name: str) -> dict[str, Any]:
    return options_of(RANK_CASES[name]) | (FEW if name == CONTINUED else {})


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


def results_of(count: int, folder: Path) -> list[dict[str, Any]]:
    """What each of several ranks has after all cases."""
    context = multiprocessing.get_context("forkserver")
    local.prepare()
    port = free_port()
    processes = [
        context.Process(target=_execute_all, args=(Launch(rank, count, rank), port, folder))
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def _execute_all(launched: Launch, port: str, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    torch.set_num_threads(1)
    ranks = Ranks(launched)
    results: dict[str, Any] = {name: executed(name, ranks) for name in RANK_CASES}
    results["checkpoints"] = checkpoints(ranks)
    results["continued"] = continued(results["checkpoints"][1], ranks)
    torch.save(results, folder / f"{ranks.number}.pt")
