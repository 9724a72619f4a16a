"""The base of all kinds of task, and of tasks with gradients in closed form.

Everything that a run needs to know about the learning problem is a method of its task, so that a new kind of task is
one file. Values that need torch are computed on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Component, Parameters
from fedsim.randomness import Stream
from fedsim.scenario.model import Evaluation
from fedsim.scenario.training import Training
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import Family
from fedsim.units import Size
from fedsim.vocabulary.arrays import Array, Floats, Ints
from fedsim.vocabulary.metrics import METRICS, MetricDefinition

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedsim.tasks.model import ModelComponent


DEFAULT_LOCAL_STEPS = 10
"""Local steps of a dispatch if the scenario gives neither steps nor epochs."""
ITEM_BYTES = {"float32": 4, "float64": 8}
"""Bytes of one number, by ``training.dtype``."""
FORWARD_PASSES_PER_STEP = 3
"""Cost of a local step per sample, forward and backward, in forward passes."""


@dataclass(frozen=True)
class TaskContext:
    """Context in which a task is built.

    Attributes:
        training: the scenario's training section.
        seed: seed of the partition.
        folder: folder that relative paths refer to.
        load: loads a data set, unless this process has already loaded it.
        merges: whether the method merges adapters into the matrices that they change.
        adapted: the model that is trained instead of the scenario's, such as one with early exits.
    """

    training: Training
    seed: int
    folder: Path
    load: Callable[[DatasetComponent, Path], Dataset]
    merges: bool = False
    adapted: Callable[[ModelComponent], ModelComponent] = lambda model: model


class SizedParams(Parameters):
    """Parameters of a task whose model may stand for one of another size on the network."""

    size: Size | None = Field(default=None, gt=0)
    """Size of the model on the network: with 25MB, a whole vector of parameters has 25 MB before
    ``server.compression``, and everything else that is sent is scaled in proportion. Training, computing time and
    memory are those of the model that is trained. By default, the size of its parameters."""


class Task(Component, ABC):
    """A learning problem whose data is distributed over clients.

    Attributes:
        learns: whether there is a model to train; otherwise a run only simulates time.
        layout: names, shapes and offsets of the flat parameter vector (length P).
        samples: training samples of each client, (N,) int64.
        model_family: determines the gradient kernels that may be used.
        dataset: the samples on which the model is trained and tested; None if there are none.
        fixed_elements: number of the model's values that training does not change; the flat vector does not hold them.
        size_bytes: bytes of a whole vector of parameters on the network, if not those of its elements; all that is sent
            is then larger or smaller in proportion.
    """

    learns: ClassVar[bool] = True
    layout: Layout
    samples: Ints
    model_family: Family
    dataset: Dataset | None = None
    fixed_elements: int = 0
    size_bytes: float | None = None

    @classmethod
    @abstractmethod
    def build(cls, params: Any, context: TaskContext) -> Task:
        """The task that ``params``, an instance of ``cls.Params``, describe."""

    @classmethod
    def clients_key(cls, params: Any) -> str:
        """Key of the task section that sets the number of clients; empty if other values determine it."""
        return ""

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.samples)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample; empty if the task has no samples."""
        return ()

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return self.layout.trainable

    def initial(self, stream: Stream, dtype: torch.dtype) -> Tensor:
        """The initial model (P,) on the CPU; a pure function of ``stream`` (purpose INITIAL_MODEL)."""
        raise TypeError(f"task {self.name} has no model")

    def fixed(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Tensors of the model that training does not change, by name: frozen parameters and constant buffers."""
        return {}

    @abstractmethod
    def flops_per_sample(self, frozen: Collection[str] = ()) -> float | None:
        """Floating-point operations of one forward and backward pass on one sample (a multiply-add is two).

        None if they are unknown. Parameters that are ``frozen`` save their gradients.
        """

    @abstractmethod
    def activations_per_sample(self) -> int:
        """Number of values per sample of a mini-batch that a local step keeps for its backward pass."""

    def steps_per_epoch(self, training: Training) -> Ints:
        """Local steps of one pass over each client's samples, (N,) int64; see :func:`steps_per_epoch`."""
        return steps_per_epoch(
            self.samples, training.batch_size, drops_last=training.last_batch == "drop"
        )

    def local_steps(self, training: Training) -> Ints:
        """Local steps of a full dispatch of each client, (N,) int64; with a time budget, the maximum."""
        if training.local_epochs is None:
            return np.full(
                self.clients, training.local_steps or DEFAULT_LOCAL_STEPS, dtype=np.int64
            )
        exact = training.local_epochs * self.steps_per_epoch(training)
        # A product such as 1.1 x 50 may exceed the whole number by a rounding error.
        steps: Ints = np.maximum(1, np.ceil(exact - 1e-9).astype(np.int64))
        return steps

    def memory_bytes(self, training: Training, kept: int, frozen: int = 0) -> Floats:
        """Memory that training needs on each client's device in bytes, (N,).

        This is the minimum of any implementation, without a framework's overhead: the model, its gradient, the
        optimizer's buffers, ``kept`` values of the method, and the activations of one mini-batch. Buffers of the model
        and ``frozen`` parameters have no gradient.
        """
        optimizer = training.optimizer.create()
        batch = np.minimum(self.samples, training.batch_size).astype(np.float64)
        trained = self.layout.trainable - frozen
        model = self.fixed_elements + self.layout.size + (1 + optimizer.buffers) * trained
        elements = model + kept + self.activations_per_sample() * batch
        needed: Floats = elements * ITEM_BYTES[training.dtype]
        return needed

    def evaluation_passes(self, *, per_client: bool, objective: bool) -> int:
        """Cost of one evaluation, in forward passes of one sample; 0 if it is negligible compared with training.

        Args:
            per_client: whether the clients' own test samples are evaluated too.
            objective: whether the training objective is evaluated too, with its gradient.
        """
        return 0

    def may_lack_kernel(self, training: Training) -> bool:
        """Whether the training section can be checked only by building a kernel."""
        return False

    @property
    def has_client_accuracies(self) -> bool:
        """Whether accuracy can be measured on the clients' own test samples."""
        return False

    @property
    def client_names(self) -> Sequence[str]:
        """Names of the clients in the data set, (N,); empty if they have none."""
        return ()

    @property
    def label_names(self) -> Sequence[str]:
        """Names of the labels of :meth:`partition_rows`; empty if they are only numbered."""
        return ()

    def partition_rows(self) -> dict[str, Ints] | None:
        """Columns client_id, label and count of the clients' training samples, for the report; None without labels."""
        return None

    def doubts(self) -> list[UserError]:
        """Warnings about the task's data."""
        return []

    def check(self, training: Training, evaluation: Evaluation) -> None:
        """Refuse settings of a scenario that the task does not support."""
        augmentation, shape = training.augmentation if self.learns else None, self.input_shape
        if augmentation is not None and len(shape) != 3:
            raise UserError(
                f"only images (channels, height, width) can be augmented, but samples have shape {shape}",
                where="training.augmentation",
                hint="leave it out, or use an image data set",
            )
        if augmentation is not None and augmentation.crop_padding >= min(shape[1:]):
            raise UserError(
                f"with {augmentation.crop_padding} pixels of padding, a crop may miss an image of {shape[1]} x "
                f"{shape[2]} entirely",
                where="training.augmentation.crop_padding",
                hint=f"use at most {min(shape[1:]) - 1}",
            )
        if evaluation.metrics and not self.input_shape:
            raise UserError(
                "the task has no test samples to compute metrics from",
                where="evaluation.metrics",
                hint="leave it out, or use a supervised task",
            )


class AnalyticTask(Task):
    """A task with gradients and metrics in closed form; it has no samples, and batch sizes are ignored.

    Attributes:
        exact_metrics: the metrics that :meth:`measure` returns.
    """

    exact_metrics: ClassVar[Sequence[MetricDefinition]] = tuple(
        METRICS[name] for name in ("loss", "gradient_norm", "distance")
    )

    @property
    @abstractmethod
    def noisy(self) -> bool:
        """Whether gradients have noise."""

    @abstractmethod
    def gradients(self, clients: Ints, points: Tensor) -> Tensor:
        """Exact gradients of the objectives of B clients, each at its own row of ``points`` (B, P); (B, P)."""

    @abstractmethod
    def losses(self, clients: Ints, points: Tensor) -> Tensor:
        """Objectives of B clients, each at its own row of ``points`` (B, P); (B,)."""

    @abstractmethod
    def noise(self, stream: Stream, clients: Ints, sequences: Ints, step: int) -> Tensor:
        """Noise of local step ``step`` of B dispatches, (B, P) float64; a pure function of client, sequence and step.

        Args:
            stream: source of the random numbers (purpose GRADIENT_NOISE).
            clients: clients of the dispatches, (B,).
            sequences: number of earlier dispatches of each client, (B,).
            step: number of the local step, from 0.
        """

    @abstractmethod
    def measure(self, model: Tensor) -> dict[str, float]:
        """Metrics of one model (P,), on any device and in any precision."""


def steps_per_epoch(samples: Ints, batch_size: int, *, drops_last: bool = False) -> Ints:
    """Mini-batches in one pass over each number of samples, with a short last one unless it is dropped; at least 1."""
    whole = samples // batch_size if drops_last else -(-samples // batch_size)
    return np.maximum(whole, 1)


def as_tensor(array: Array) -> Tensor:
    """The array as a tensor that shares its memory."""
    import torch

    return torch.from_numpy(array)
