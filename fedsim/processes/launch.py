"""The processes that torchrun or srun starts for one run, by their environment variables; torch is not needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fedsim.errors import UserError

_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    # Those of a step, because a batch script that starts one process itself has the number of tasks of its job.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """This process among those of one run.

    Attributes:
        rank: its number.
        count: number of processes.
        local: its number among those of this machine.
    """

    rank: int = 0
    count: int = 1
    local: int = 0


def launch() -> Launch:
    """This process as torchrun or srun started it; the only one if neither did."""
    for names in _VARIABLES:
        if all(name in os.environ for name in names):
            values = [os.environ[name] for name in names]
            if not all(map(str.isdecimal, values)) or int(values[0]) >= int(values[1]):
                message = f"{', '.join(names)} are {', '.join(values)}: no process of a run"
                raise UserError(message, where="environment", hint="unset them")
            return Launch(*map(int, values))
    return Launch()


def follows(workers: str) -> bool:
    """Whether another process writes a run with workers of this name, and speaks to the user."""
    return workers == "distributed" and launch().rank > 0


def alone(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a process is the only one of its run."""
    names = {name for names in _VARIABLES for name in names}
    return {name: value for name, value in environment.items() if name not in names}
