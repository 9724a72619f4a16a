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
        trained: the examples among them that passed with gradients.
        host_s: CPU seconds of the host.
    """

    steps: int = 0
    batches: int = 0
    examples: int = 0
    trained: int = 0
    host_s: float = 0.0


_counts: Counts | None = None
_depth = 0
_handles: list[Any] = []
"""The hooks, which are registered once, because registering takes milliseconds."""


@contextlib.contextmanager
def counted() -> Iterator[Counts]:
    """Count the work done in this process while the context lasts.

    Only outermost modules count as models, so a layer within a model does not count again. The examples of a batch are
    the length of the first dimension of the model's first tensor.
    """
    global _counts, _depth
    if not _handles:
        _handles.extend(
            (
                torch_module.register_module_forward_pre_hook(_entered),
                torch_module.register_module_forward_hook(_left, always_call=True),
                torch_optimizer.register_optimizer_step_post_hook(_stepped),
            )
        )
    _counts = counts = Counts()
    _depth = 0
    began = time.process_time()
    try:
        yield counts
    finally:
        counts.host_s = time.process_time() - began
        _counts = None


def stop_counting() -> None:
    """Remove the hooks from PyTorch."""
    while _handles:
        _handles.pop().remove()


def _entered(_: Any, inputs: tuple[Any, ...]) -> None:
    global _depth
    if _counts is None:
        return
    _depth += 1
    if _depth > 1:
        return
    tensor = next((item for item in inputs if isinstance(item, torch.Tensor)), None)
    size = 1 if tensor is None or not tensor.dim() else int(tensor.shape[0])
    _counts.batches += 1
    _counts.examples += size
    if torch.is_grad_enabled():
        _counts.trained += size


def _left(*_: Any) -> None:
    global _depth
    _depth -= _counts is not None


def _stepped(*_: Any) -> None:
    if _counts is not None:
        _counts.steps += 1
