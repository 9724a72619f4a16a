"""Tasks on a Ray cluster: an existing one, or one started on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.processes.cluster import connect_to_ray
from fedsim.sweeps.local import ONE_THREAD
from fedsim.sweeps.task import Performer, Result, Results, Task

_LOOK_S = 0.5
_LEAVE_S = 10.0
_RETRIES = 2
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
    """Perform tasks on Ray, one run per task; yields None when time has passed without a result.

    Every node must have fedsim installed and see the sweep's folder, the traces and the data under the same paths.
    A run whose process or node is lost is resumed from its folder by another, at most twice.

    Args:
        tasks: the runs to perform.
        jobs: runs at a time; as many as the cluster can run if None.
        cluster: the cluster.

    Raises:
        UserError: Ray is not installed, or there is no cluster at the address.
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
            done, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK_S)
            for reference in done:
                yield _result(ray, reference, pending.pop(reference))
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


def _result(ray: Any, reference: Any, task: Task) -> Result:
    try:
        result: Result = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Result(task, f"Ray lost this run: {str(error).splitlines()[0]}")
    return result


def _perform(task: Task) -> Result:
    """Perform a task in a worker process of Ray, which performs several in turn."""
    global _performer
    if _performer is None:
        import torch

        torch.set_num_threads(1)
        _performer = Performer(threads=1)
    return _performer.perform(task)
