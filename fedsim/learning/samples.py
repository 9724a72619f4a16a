"""Training samples on the compute device."""

from __future__ import annotations

import copy
from functools import cached_property

import torch
from torch import Tensor

from fedsim.learning.batches import Moves, moved
from fedsim.learning.device import Execution
from fedsim.tasks.base import Task
from fedsim.tasks.kinds.supervised import SupervisedTask

# Converted samples are kept if they take at most this many bytes; larger sets are converted batch by batch.
_CONVERTED_BYTES = 1 << 30
# Sets larger than this share of the GPU's memory stay in the host's memory, or on its disk if memory-mapped.
_CUDA_SHARE = 0.4


class Samples:
    """Inputs and labels from which batches are gathered, on the compute device if they fit.

    Args:
        task: converts raw samples into inputs.
        x: raw samples, (n, *shape).
        y: labels, (n,).
        execution: device and dtype.
    """

    def __init__(self, task: SupervisedTask, x: Tensor, y: Tensor, execution: Execution) -> None:
        self.task = task
        self.execution = execution
        self._dtype = execution.dtype
        self._device = execution.device
        self.y = y.to(execution.device)
        converted_bytes = x.numel() * torch.finfo(execution.dtype).bits // 8
        self._ready = converted_bytes <= _CONVERTED_BYTES
        self.x = x
        if execution.device.type != "cuda" or x.nbytes <= _cuda_room(execution.device):
            self.x = x.to(execution.device)
        if self._ready:
            self.x = task.inputs(self.x, execution.dtype).contiguous()

    def of(self, task: SupervisedTask) -> Samples:
        """The same samples for a task with another model."""
        samples = copy.copy(self)
        samples.task = task
        return samples

    def __len__(self) -> int:
        return len(self.y)

    def gather(self, rows: Tensor, moves: Moves | None = None) -> Tensor:
        """Inputs of the samples ``rows`` (m,) as the module receives them, augmented by ``moves`` of m images."""
        raw = torch.index_select(self.x, 0, rows.to(self.x.device)).to(self._device)
        if moves is not None:
            raw = moved(raw, moves, self._black)
        return raw if self._ready else self.task.inputs(raw, self._dtype)

    @cached_property
    def _black(self) -> Tensor:
        """An image of zeros in the format of the stored samples."""
        zeros = torch.zeros(1, *self.x.shape[1:], dtype=self.x.dtype, device=self._device)
        return (self.task.inputs(zeros, self._dtype) if self._ready else zeros)[0]

    def slice(self, start: int, end: int) -> Tensor:
        """Inputs of consecutive samples."""
        raw = self.x[start:end].to(self._device)
        return raw if self._ready else self.task.inputs(raw, self._dtype)


def training_samples(task: Task, execution: Execution) -> Samples | None:
    """The training samples of a task; None if its gradients are known without samples."""
    if not isinstance(task, SupervisedTask):
        return None
    return Samples(task, task.train_x, task.train_y, execution)


def _cuda_room(device: torch.device) -> int:
    return int(_CUDA_SHARE * torch.cuda.get_device_properties(device).total_memory)
