"""Data, kernel and method on one device, and the workers that share them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

import torch

from fedsim.learning.device import Execution, reproducible
from fedsim.learning.kernels import choose
from fedsim.learning.local_training import LocalTrainer
from fedsim.learning.samples import Samples
from fedsim.learning.workers.base import Group
from fedsim.methods.base import LocalUpdate, Method
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.training import Training
from fedsim.tasks.base import Task
from fedsim.tasks.kinds.supervised import SupervisedTask


class Worker:
    """Trains one group at a time.

    Args:
        method: whose local rule is followed; on the device of ``execution``.
        trainer: does the local steps there.
        execution: where.
        home: the device that updates are wanted on.
    """

    def __init__(
        self, method: Method, trainer: LocalTrainer, execution: Execution, home: torch.device
    ) -> None:
        self._method = method
        self._trainer = trainer
        self._execution = execution
        self._home = home

    def train(self, group: Group) -> LocalUpdate:
        """Local training of a group; on the thread that asks."""
        device, home = self._execution.device, self._home
        # Copies between two CUDA devices wait for each other by themselves, on the streams of both.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            update = self._method.local_update(group.cohort(self._execution), self._trainer)
            if device == home:
                return update
            return LocalUpdate(
                {name: rows.to(home) for name, rows in update.vectors.items()},
                update.loss.to(home),
                {name: rows.to(home) for name, rows in update.memory.items()},
            )


class Station:
    """Everything that local training needs on one device.

    Attributes:
        task, training, execution: as given.
        method: the method, after its :meth:`fedsim.methods.base.Method.initial_state`.
        samples: training samples of a supervised task on the device; None for others.
        kernel: computes the gradients.
        threads: how many workers may work there at once.
        server: the server state at version 0.

    Args:
        task: what is learned from which data.
        method: the rules of learning, made for this device.
        training: what a local step is.
        seed: the scenario's seed.
        execution: device and precision.
    """

    def __init__(
        self, task: Task, method: Method, training: Training, seed: int, execution: Execution
    ) -> None:
        self.task = task
        self.method = method
        self.training = training
        self.execution = execution
        self._seed = seed
        with reproducible():
            self.samples = (
                Samples(task, task.train_x, task.train_y, execution)
                if isinstance(task, SupervisedTask)
                else None
            )
            choice = choose(task, training, execution, self.samples, seed)
            self.kernel = choice.kernel
            self.threads = choice.workers
            model = task.initial(Stream(seed, Purpose.INITIAL_MODEL), execution.dtype)
            self.server = method.initial_state(model.to(execution.device))

    def workers(self, count: int, home: torch.device | None = None) -> list[Worker]:
        """Workers that share the data, each with a kernel of its own; their updates go to ``home`` or stay here."""
        execution, layout = self.execution, self.task.layout
        kernels = [self.kernel, *(self.kernel.replica() for _ in range(count - 1))]
        return [
            Worker(
                self.method,
                LocalTrainer(kernel, layout, self.training),
                execution,
                home or execution.device,
            )
            for kernel in kernels
        ]

    def on(self, device: torch.device) -> Station:
        """The same on another device of this process, or once more on this one."""
        context = replace(self.method.context, device=device)
        method = type(self.method)(self.method.params, context)
        execution = replace(self.execution, device=device, others=())
        return Station(self.task, method, self.training, self._seed, execution)

    def identity(self) -> dict[str, str]:
        """What a checkpoint can only be continued with."""
        return {
            "kernel": f"{self.kernel.name}/{self.kernel.revision}",
            "device": self.execution.device.type,
            "dtype": str(self.execution.dtype).removeprefix("torch."),
        }

    def describe(self) -> Mapping[str, str | int]:
        """What the bits of the results may depend on."""
        return {**self.execution.describe(), **self.identity()}
