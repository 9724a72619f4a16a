"""Counts the work that a ClientApp does while it handles one message."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer


@dataclass
class Counts:
    """The work of one message.

    Attributes:
        steps: steps of PyTorch optimizers.
        batches, examples: batches and examples that passed a PyTorch model.
        trained: those of the examples that passed it with gradients.
        host_s: CPU seconds of the host.
    """

    steps: int = 0
    batches: int = 0
    examples: int = 0
    trained: int = 0
    host_s: float = 0.0


@contextlib.contextmanager
def counted() -> Iterator[Counts]:
    """Count the work done in this process while the context lasts.

    Only outermost modules count as models, so a layer within a model does not count again. The examples of a batch are
    the length of the first dimension of the model's first tensor.
    """
    counts, depth = Counts(), [0]

    def entered(_: Any, inputs: tuple[Any, ...]) -> None:
        depth[0] += 1
        if depth[0] > 1:
            return
        tensor = next((item for item in inputs if isinstance(item, torch.Tensor)), None)
        size = 1 if tensor is None or not tensor.dim() else int(tensor.shape[0])
        counts.batches += 1
        counts.examples += size
        if torch.is_grad_enabled():
            counts.trained += size

    def left(*_: Any) -> None:
        depth[0] -= 1

    def stepped(*_: Any) -> None:
        counts.steps += 1

    handles = [
        torch_module.register_module_forward_pre_hook(entered),
        torch_module.register_module_forward_hook(left, always_call=True),
        torch_optimizer.register_optimizer_step_post_hook(stepped),
    ]
    began = time.process_time()
    try:
        yield counts
    finally:
        counts.host_s = time.process_time() - began
        for handle in handles:
            handle.remove()
