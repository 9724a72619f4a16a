"""Tasks on a cluster: a Ray cluster, which may be started on this machine, or an array of Slurm, through submitit.

Every node must have fedsim installed and see the sweep's folder, the traces and the data under the same paths. Results
are None when time has passed without one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import UserError, refused
from fedsim.parts.extras import required
from fedsim.processes.cluster import connect_to_ray
from fedsim.sweeps.local import ONE_THREAD
from fedsim.sweeps.task import Performer, Result, Results, Task
from fedsim.units import parse_duration_s, parse_size_bytes

LOGS = "slurm"
"""Folder in the sweep's folder with the scripts and logs of the array."""
_RAY_LOOK_S, _SLURM_LOOK_S = 0.5, 1.0
_LEAVE_S = 10.0
_RETRIES = 2
_GB = 1e9
_performer: Performer | None = None


@dataclass(frozen=True)
class Ray:
    """A Ray cluster.

    Attributes:
        address: of a cluster (``auto`` for the one on this machine, ``host:port``, ``ray://host:port``); if None, one
            is started on this machine.
        gpus_per_run: GPUs of each run that may use one, if the cluster has any: 0.25 lets four runs share a GPU.
    """

    address: str | None = None
    gpus_per_run: float = 1.0


def run_on_ray(tasks: Sequence[Task], jobs: int | None, cluster: Ray) -> Results:
    """Perform tasks on Ray, one run per task.

    A run whose process or node is lost is resumed from its folder by another, at most twice.

    Args:
        tasks: the runs to perform.
        jobs: runs at a time; as many as the cluster can run if None.
        cluster: the cluster.
    """
    address = cluster.address
    ray = connect_to_ray(
        address,
        f"option --address {address}" if address else "option --engine ray",
        runtime_env={"env_vars": ONE_THREAD},
        **({} if address is not None else {"num_cpus": jobs}),
    )
    pending: dict[Any, Task] = {}
    try:
        gpus = ray.cluster_resources().get("GPU", 0)
        remote = ray.remote(_perform)
        waiting = list(reversed(tasks))
        while waiting or pending:
            while waiting and (jobs is None or len(pending) < jobs):
                task = waiting.pop()
                uses_gpu = bool(gpus) and task.source.data["training"]["device"] != "cpu"
                options = remote.options(
                    num_cpus=1,
                    num_gpus=cluster.gpus_per_run if uses_gpu else 0,
                    max_retries=_RETRIES,
                )
                pending[options.remote(task)] = task
            done, _ = ray.wait(list(pending), num_returns=1, timeout=_RAY_LOOK_S)
            for reference in done:
                task = pending.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayError as error:
                    yield Result(task, f"Ray lost this run: {str(error).splitlines()[0]}")
            if not done:
                yield None
    finally:
        with contextlib.suppress(Exception):
            # After an interrupt, runs in progress record that they were interrupted and end.
            for reference in pending:
                ray.cancel(reference)
            if pending:
                ray.wait(list(pending), num_returns=len(pending), timeout=_LEAVE_S)
            ray.shutdown()


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
        """Read a time such as ``2h``, and a memory such as ``8GB``."""
        try:
            return cls(partition, parse_duration_s(time), parse_size_bytes(memory))
        except ValueError as error:
            where = f"--time {time} --memory {memory}"
            raise UserError(str(error), where=where, hint="for example 2h and 8GB") from None


def run_on_slurm(tasks: Sequence[Task], jobs: int | None, folder: Path, slurm: Slurm) -> Results:
    """Perform tasks as one array of Slurm.

    Args:
        tasks: the runs to perform.
        jobs: runs at a time; as many as the cluster admits if None.
        folder: the sweep's folder.
        slurm: resources of each run.
    """
    submitit = required("submitit", "slurm", "--engine slurm")
    from submitit.core.utils import FailedJobError, UncompletedJobError

    hint = "run the command on a node from which sbatch submits jobs"
    with refused("there is no Slurm", "--engine slurm", hint, RuntimeError):
        executor = submitit.AutoExecutor(folder=folder / LOGS, cluster=slurm.cluster)
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
                task = pending.pop(job)
                try:
                    yield job.result()
                except (FailedJobError, UncompletedJobError) as error:
                    lines = [line for line in str(error).splitlines() if line.strip()]
                    yield Result(task, f"Slurm lost this run (job {job.job_id}): {lines[-1]}")
            if not done:
                yield None
                time.sleep(_SLURM_LOOK_S)
    finally:
        with contextlib.suppress(Exception):
            for job in pending:
                job.cancel()


class Work:
    """The work of one element of the array; after a preemption, Slurm queues it again, and the run is resumed."""

    def __call__(self, task: Task) -> Result:
        """Perform a task, or resume it."""
        return _perform(task)

    def checkpoint(self, task: Task) -> Any:
        """What is queued again: the same task, whose folder holds the work done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, task)


def _perform(task: Task) -> Result:
    global _performer
    if _performer is None:
        import torch

        torch.set_num_threads(1)
        _performer = Performer(threads=1)
    return _performer.perform(task)
