"""Tasks on a Slurm cluster, as one array, through submitit."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.sweeps.task import Performer, Result, Results, Task
from fedsim.units import parse_duration_s, parse_size_bytes

LOGS = "slurm"
"""Folder in the sweep's folder with the scripts and logs of the array."""
_LOOK_S = 1.0
_GB = 1e9


@dataclass(frozen=True)
class Slurm:
    """Resources that each run requests from Slurm.

    Attributes:
        partition: the partition; the cluster's default if None.
        time_s: wall seconds after which a run is stopped and queued again, to be resumed.
        memory_bytes: memory.
        cluster: ``slurm``; ``local`` (processes) and ``debug`` (this process) are for tests.
    """

    partition: str | None = None
    time_s: float = 3600.0
    memory_bytes: float = 4e9
    cluster: str = "slurm"

    @classmethod
    def parse(cls, partition: str | None, time: str, memory: str) -> Slurm:
        """Read a time such as ``2h``, and a memory such as ``8GB``.

        Raises:
            UserError: they are not of this form.
        """
        try:
            return cls(partition, parse_duration_s(time), parse_size_bytes(memory))
        except ValueError as error:
            where = f"--time {time} --memory {memory}"
            raise UserError(str(error), where=where, hint="for example 2h and 8GB") from None


class Work:
    """The work of one element of the array; after a preemption, Slurm queues it again, and the run is resumed."""

    def __call__(self, task: Task) -> Result:
        """Perform a task, or resume it."""
        import torch

        torch.set_num_threads(1)
        return Performer(threads=1).perform(task)

    def checkpoint(self, task: Task) -> Any:
        """What is queued again: the same task, whose folder holds the work done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, task)


def run_on_slurm(tasks: Sequence[Task], jobs: int | None, folder: Path, slurm: Slurm) -> Results:
    """Perform tasks as one array; yields None when time has passed without a result.

    Every node must have fedsim installed and see the sweep's folder, the traces and the data under the same paths.

    Args:
        tasks: the runs to perform.
        jobs: runs at a time; as many as the cluster admits if None.
        folder: the sweep's folder.
        slurm: resources of each run.

    Raises:
        UserError: submitit is not installed, or there is no Slurm.
    """
    try:
        import submitit
    except ImportError:
        raise UserError(
            "submitit is not installed",
            where="--engine slurm",
            hint='install it with: pip install "fedsim-des[slurm]"',
        ) from None
    try:
        executor = submitit.AutoExecutor(folder=folder / LOGS, cluster=slurm.cluster)
    except RuntimeError as error:
        hint = "run the command on a node from which sbatch submits jobs"
        raise UserError(f"there is no Slurm: {error}", where="--engine slurm", hint=hint) from None
    executor.update_parameters(
        name="fedsim",
        timeout_min=max(1, math.ceil(slurm.time_s / 60)),
        mem_gb=max(1, math.ceil(slurm.memory_bytes / _GB)),
        cpus_per_task=1,
        gpus_per_node=int(any(task.source.data["training"]["device"] == "cuda" for task in tasks)),
        slurm_array_parallelism=jobs or len(tasks),
        **({} if slurm.partition is None else {"slurm_partition": slurm.partition}),
    )
    pending = dict(zip(executor.map_array(Work(), tasks), tasks, strict=True))
    try:
        while pending:
            done = [job for job in pending if job.done()]
            for job in done:
                yield _result(job, pending.pop(job))
            if not done:
                yield None
                time.sleep(_LOOK_S)
    finally:
        with contextlib.suppress(Exception):
            for job in pending:
                job.cancel()


def _result(job: Any, task: Task) -> Result:
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        result: Result = job.result()
    except (FailedJobError, UncompletedJobError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return Result(task, f"Slurm lost this run (job {job.job_id}): {lines[-1]}")
    return result
