"""Data, kernel and method on one device, the workers that share them, and the groups that they train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.learning.contract import Named
from fedsim.learning.device import Execution, keep_freed_memory, reproducible, uploaded
from fedsim.learning.kernels import Kernel, NestedKernel, choose
from fedsim.learning.local_training import LocalTrainer
from fedsim.learning.samples import training_samples
from fedsim.methods.base import Cohort, LocalUpdate, Method
from fedsim.randomness import Purpose, Stream, isolated
from fedsim.scenario.training import Training
from fedsim.tasks.base import AnalyticTask, Task
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.metrics import DispatchLoss
from fedsim.vocabulary.timeline import Train

# Groups are not made smaller than this to occupy more workers: such a group takes a few milliseconds.
_SHARE_FLOPS = 100_000_000
# The same on CUDA, for one local step: with less work, launching it would take longer than computing it. And the
# maximum number of groups per wave.
_CUDA_SHARE_FLOPS = 50_000_000_000
_CUDA_SHARES = 8


class Group(NamedTuple):
    """Dispatches that are trained together, and what makes a cohort of them, or of some, on the device of a worker."""

    trains: Sequence[Train]
    cohort: Callable[[Sequence[Train], Execution], Cohort]


def cohort_of(
    trains: Sequence[Train],
    execution: Execution,
    *,
    samples: Ints,
    rates: Sequence[float],
    down: Mapping[str, Sequence[Tensor]],
    memory: Mapping[str, Tensor],
    in_place: Mapping[str, list[Tensor]] = {},
) -> Cohort:
    """The cohort of B dispatches on a device.

    Args:
        trains, execution: the dispatches, and the device.
        samples: training samples of their clients, (B,).
        rates: local learning rate of each.
        down: the vector (elements,) that each received, by name; those of one version are one object.
        memory, in_place: as those of the cohort.
    """
    device = execution.device
    return Cohort(
        clients=np.array([train.client for train in trains]),
        sequences=np.array([train.sequence for train in trains]),
        versions=np.array([train.version for train in trains]),
        rounds=np.array([train.round for train in trains]),
        steps=np.array([train.steps for train in trains]),
        steps_assigned=np.array([train.steps_assigned for train in trains]),
        samples=samples,
        in_full=np.array([train.in_full or not train.sequence for train in trains]),
        learning_rates=uploaded(np.array(rates), device).to(execution.dtype),
        down=Named((name, _matrix(received, device)) for name, received in down.items()),
        memory=Named((name, rows.to(device)) for name, rows in memory.items()),
        in_place=in_place,
    )


def _matrix(received: Sequence[Tensor], device: torch.device) -> Tensor:
    """The vectors as rows on a device; not a copy if all are one object, which is there already."""
    moved = {id(vector): vector for vector in received}
    moved = {key: vector.to(device) for key, vector in moved.items()}
    if len(moved) == 1:
        return moved[id(received[0])].expand(len(received), -1)
    return torch.stack([moved[id(vector)] for vector in received])


@dataclass(frozen=True)
class Worker:
    """Trains one group at a time, by the method and the trainers of one device, and moves updates to ``home``.

    There is a trainer for each part of the model.
    """

    method: Method
    trainers: Sequence[LocalTrainer]
    execution: Execution
    home: torch.device

    def train(self, group: Group) -> LocalUpdate:
        """Train a group on the calling thread."""
        device, home = self.execution.device, self.home
        # Copies between two CUDA devices are synchronized on the streams of both.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            update = self._local_update(group)
            return update if device == home else mapped(lambda rows: rows.to(home), update)

    def _local_update(self, group: Group) -> LocalUpdate:
        """The update of a group, in two halves if it does not fit into the device's memory.

        Raises:
            UserError: one client does not fit.
        """
        trainer = self.trainers[levels_of(self.method, np.array([group.trains[0].client]))[0]]
        try:
            return self.method.local_update(group.cohort(group.trains, self.execution), trainer)
        except torch.OutOfMemoryError:
            half = len(group.trains) // 2
            if not half:
                raise UserError(
                    "the GPU's memory is too small to train one client",
                    where="training.batch_size",
                    hint="use smaller mini-batches or a smaller model, or end other programs on the GPU",
                ) from None
        # Outside the handler, whose exception keeps the tensors of the attempt alive.
        trainer.kernel.limit_group(half)
        trainer.release()
        torch.cuda.empty_cache()
        halves = group.trains[:half], group.trains[half:]
        first, second = (self._local_update(Group(part, group.cohort)) for part in halves)
        return LocalUpdate(
            _joined(first.vectors, second.vectors),
            torch.cat([first.loss, second.loss]),
            _joined(first.memory, second.memory),
        )


def levels_of(method: Method, clients: Ints) -> Ints:
    """Number of the part of the model that each of these clients trains, (B,); 0 for the whole model."""
    return np.zeros_like(clients) if method.parts is None else method.parts.level[clients]


def mapped(function: Callable[[Tensor], Tensor], update: LocalUpdate) -> LocalUpdate:
    """An update whose tensors are those that ``function`` makes of the tensors of ``update``."""
    vectors, memory = (
        {name: function(rows) for name, rows in each.items()}
        for each in (update.vectors, update.memory)
    )
    return LocalUpdate(vectors, function(update.loss), memory)


def _joined(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([rows, second[name]]) for name, rows in first.items()}


class Station:
    """Everything that local training needs on one device.

    Args:
        task, method, training, seed, execution: those of the run.
        dispatch_loss: the loss that a dispatch reports.

    Attributes:
        method: the method, built for this device, after its :meth:`fedsim.methods.base.Method.initial_state`.
        samples: training samples of a supervised task on the device; None for others.
        kernels: compute the gradients of each part of the model, the largest first; only one of the whole model.
        threads: number of workers that may train there at once.
        server: the server state at version 0.
        step_flops: operations of a local step of one client.
    """

    def __init__(
        self,
        task: Task,
        method: Method,
        training: Training,
        seed: int,
        execution: Execution,
        *,
        dispatch_loss: DispatchLoss = "mean",
    ) -> None:
        self.task, self.method, self.training = task, method, training
        self.execution, self._seed = execution, seed
        self.step_flops = int(task.flops_per_sample() or 0) * training.batch_size
        with reproducible(tf32=execution.tf32):
            keep_freed_memory()
            self.samples = training_samples(task, execution)
            self.kernels = self._kernels(dispatch_loss)
            in_order = isinstance(task, AnalyticTask) or training.executor == "plain"
            self.threads = 1 if in_order else execution.threads
            with isolated(seed):
                model = task.initial(Stream(seed, Purpose.INITIAL_MODEL), execution.dtype)
            with isolated(seed):
                self.server = method.initial_state(model.to(execution.device))

    @property
    def kernel(self) -> Kernel:
        """The kernel of the whole model, or of its largest part."""
        return self.kernels[0]

    def _kernels(self, dispatch_loss: DispatchLoss) -> list[Kernel]:
        parts, samples = self.method.parts, self.samples
        tasks: Sequence[Task] = [self.task] if parts is None else parts.tasks
        kernels = [
            choose(
                task,
                self.training,
                self.execution,
                samples.of(task) if isinstance(task, SupervisedTask) and samples else None,
                self._seed,
                dispatch_loss=dispatch_loss,
            )
            for task in tasks
        ]
        if parts is None or not parts.submodels.nested:
            return kernels
        return [NestedKernel(parts, kernels, level, self._seed) for level in range(len(kernels))]

    def workers(self, count: int, home: torch.device | None = None) -> list[Worker]:
        """Workers that share the data, each with its own kernel; updates are moved to ``home`` if it is given."""
        execution, parts = self.execution, self.method.parts
        layouts = [task.layout for task in ([self.task] if parts is None else parts.tasks)]
        home = home or execution.device
        sets = [self.kernels]
        sets += [[kernel.replica() for kernel in self.kernels] for _ in range(count - 1)]
        return [
            Worker(
                self.method,
                [
                    LocalTrainer(kernel, layout, self.training)
                    for kernel, layout in zip(kernels, layouts, strict=True)
                ],
                execution,
                home,
            )
            for kernels in sets
        ]

    def groups(self, wave: Sequence[Train], workers: int) -> list[list[Train]]:
        """The wave in groups of one shape, each sorted by steps, most first; ``workers`` groups are trained at once."""
        clients = np.array([train.client for train in wave])
        steps = np.array([train.steps for train in wave])
        levels = levels_of(self.method, clients)
        groups: list[list[Train]] = []
        for level, kernel in enumerate(self.kernels):
            at = np.flatnonzero(levels == level)
            shapes = kernel.shape_class(clients[at])
            order = np.lexsort((-steps[at], shapes))
            for shape in np.unique(shapes):
                members = at[order[shapes[order] == shape]]
                pieces = self._pieces(kernel, steps[members], workers)
                for part in np.array_split(members, pieces):
                    groups.append([wave[index] for index in part])
        return groups

    def _pieces(self, kernel: Kernel, steps: Ints, workers: int) -> int:
        """The number of groups of dispatches of one shape."""
        pieces = -(-len(steps) // kernel.largest_group())
        # Each worker gets a share that is large enough; if groups affect the bits, they must not depend on the number
        # of workers.
        if self.execution.device.type == "cuda":
            shares = len(steps) * self.step_flops // _CUDA_SHARE_FLOPS
            return min(len(steps), max(pieces, min(_CUDA_SHARES, shares)))
        if kernel.group_invariant:
            shares = int(steps.sum()) * self.step_flops // _SHARE_FLOPS
            fair = -(-pieces // workers) * workers
            return min(len(steps), max(pieces, min(fair, shares)))
        return pieces

    def on(self, device: torch.device) -> Station:
        """A copy on another device of this process, or a second one on this device."""
        context = replace(self.method.context, tensors=lambda: (self.execution.dtype, device))
        method = type(self.method)(self.method.params, context)
        execution = replace(self.execution, device=device, others=())
        given = self.task, method, self.training, self._seed, execution
        return Station(*given, dispatch_loss=self.kernel.dispatch_loss)

    def identity(self) -> dict[str, str]:
        """The properties that a resumed run must share with its checkpoint."""
        return {
            "kernel": "+".join(dict.fromkeys(f"{one.name}/{one.revision}" for one in self.kernels)),
            "device": self.execution.device.type,
            "dtype": str(self.execution.dtype).removeprefix("torch."),
        }

    def describe(self) -> Mapping[str, str | int]:
        """Everything that the bits of the results may depend on."""
        return {**self.execution.describe(), **self.identity()}
