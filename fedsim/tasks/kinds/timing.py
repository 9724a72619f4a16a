"""The timing task: sizes and amounts of work, and nothing to learn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsim.scenario.model import TimingTask as TimingParameters
from fedsim.tasks.base import ITEM_BYTES, Task, TaskContext
from fedsim.tasks.layout import Layout

_ONLY_BLOCK = "model"


class TimingTask(Task):
    """No learning: clients, sizes and work alone, for timing questions.

    Args:
        params: sizes, as the scenario gives them.
        item_bytes: bytes of one parameter.
    """

    name: ClassVar[str] = "timing"
    learns: ClassVar[bool] = False
    Params = TimingParameters

    def __init__(self, params: TimingParameters, item_bytes: int = ITEM_BYTES["float32"]) -> None:
        self.params = params
        blocks = params.names or {_ONLY_BLOCK: params.elements(item_bytes)}
        self.layout = Layout.of((name, (length,)) for name, length in blocks.items())
        self.samples = np.full(params.clients, params.samples, dtype=np.int64)

    @classmethod
    def build(cls, params: TimingParameters, context: TaskContext) -> TimingTask:
        """The task, with parameters of ``training.dtype``."""
        return cls(params, ITEM_BYTES[context.training.dtype])

    def flops_per_sample(self) -> float | None:
        """As the scenario gives them; None if it does not."""
        return self.params.flops_per_sample

    def activations_per_sample(self) -> int:
        """As the scenario gives them; 0 if it does not."""
        return self.params.activations
