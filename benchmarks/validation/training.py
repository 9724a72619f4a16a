"""Series ii: clients that train with torch under CPU quotas, one thread and one control group each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.validation.client import Compute

_PERIOD_US = 10_000
_TOTAL = 1.6  # cores for all clients together
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


def unavailable() -> str | None:
    """Why quotas cannot be set here; None if they can."""
    try:
        with quotas(1):
            return None
    except OSError as error:
        return f"control groups for CPU quotas cannot be made: {error}"


@contextlib.contextmanager
def quotas(clients: int) -> Iterator[list[Path]]:
    """A control group per client; their quotas differ by a factor of 2 and sum to at most 1.6 cores.

    Raises:
        OSError: neither version 1 nor version 2 of control groups is writable.
    """
    weights = [1 + number / max(clients - 1, 1) for number in range(clients)]
    first = (_V1 / "cpu.cfs_quota_us").exists() or (_V1 / "tasks").exists()
    root = (_V1 if first else _V2) / f"fedsim-validation-{os.getpid()}"
    groups: list[Path] = []
    root.mkdir()
    try:
        if not first:
            (root / "cgroup.subtree_control").write_text("+cpu")
        for number, weight in enumerate(weights):
            group = root / f"client-{number}"
            group.mkdir()
            groups.append(group)
            quota = round(min(_TOTAL * weight / sum(weights), 1.0) * _PERIOD_US)
            if first:
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        yield groups
    finally:
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()
        with contextlib.suppress(OSError):
            root.rmdir()


def trainer(group: Path) -> Compute:
    """Real local steps, in this process, within a control group."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    parameters = list(model.parameters())
    samples, labels = torch.randn(64, 256), torch.randint(10, (64,))

    def train(steps: int, work_ns: int) -> None:
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(model(samples), labels)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(0.01 * gradient)

    train(20, 0)  # the first steps load and allocate without the quota
    # A quota applies only to ordinary priority.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    return train
