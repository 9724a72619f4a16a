"""Training samples on the compute device."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsim.learning.device import Execution
from fedsim.tasks.supervised import SupervisedTask

# Converted samples are kept where they take no more than this; larger sets are converted batch by batch.
_CONVERTED_BYTES = 1 << 30


class Samples:
    """Inputs and labels that batches are gathered from.

    Args:
        task: whose inputs they are; converts raw samples.
        x: raw samples, (n, *shape).
        y: labels, (n,).
        execution: device and dtype.
    """

    def __init__(self, task: SupervisedTask, x: Tensor, y: Tensor, execution: Execution) -> None:
        self._task = task
        self._dtype = execution.dtype
        self.y = y.to(execution.device)
        converted_bytes = x.numel() * torch.finfo(execution.dtype).bits // 8
        self._ready = converted_bytes <= _CONVERTED_BYTES
        self.x = x.to(execution.device)
        if self._ready:
            self.x = task.inputs(self.x, execution.dtype).contiguous()

    def __len__(self) -> int:
        return len(self.y)

    def gather(self, rows: Tensor, scratch: dict[str, Tensor] | None = None) -> Tensor:
        """Inputs of the samples ``rows`` (m,), as the module sees them.

        With ``scratch`` the result lies in memory that the next call with the same ``scratch`` uses again.
        """
        if scratch is None:
            raw = torch.index_select(self.x, 0, rows)
        else:
            held = scratch.get("x")
            if held is None or len(held) < len(rows):
                held = self.x.new_empty((len(rows), *self.x.shape[1:]))
                scratch["x"] = held
            raw = torch.index_select(self.x, 0, rows, out=held[: len(rows)])
        return raw if self._ready else self._task.inputs(raw, self._dtype)

    def slice(self, start: int, end: int) -> Tensor:
        """Inputs of consecutive samples."""
        raw = self.x[start:end]
        return raw if self._ready else self._task.inputs(raw, self._dtype)
