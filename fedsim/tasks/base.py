"""What the learning plane needs to know of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.randomness import Stream
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import Family


class Task(ABC):
    """A learning problem shared out among clients.

    Attributes:
        layout: names, shapes and offsets of the flat parameter vector (length P).
        samples: training samples of each client, (N,) int64.
        model_family: which local-training kernels may be used.
    """

    layout: Layout
    samples: npt.NDArray[np.int64]
    model_family: Family

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.samples)

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return self.layout.trainable

    @abstractmethod
    def initial(self, stream: Stream, dtype: torch.dtype) -> Tensor:
        """The initial model (P,) on the CPU; a pure function of ``stream`` (purpose INITIAL_MODEL)."""

    @abstractmethod
    def flops_per_sample(self) -> int:
        """Floating-point operations of one forward and backward pass on one sample (a multiply-add is two)."""

    @abstractmethod
    def activations_per_sample(self) -> int:
        """Numbers that a local step keeps for each sample of its mini-batch until the backward pass."""

    def steps_per_epoch(self, batch_size: int) -> npt.NDArray[np.int64]:
        """Mini-batches in one pass over each client's samples, the last one possibly short, (N,) int64, at
        least 1."""
        return np.maximum(-(-self.samples // batch_size), 1)
