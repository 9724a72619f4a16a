"""The interface of submodels: the parts of a model, and where their parameters lie in it.

A part is a task of its own with a smaller module, so that every kernel trains it as any other model. Its vector is made
of entries of the whole vector, whose positions depend on the part and the round alone.
"""

from __future__ import annotations

import math
from abc import ABC
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fedsim.errors import UserError
from fedsim.parts.component import Component
from fedsim.parts.parameters import Parameters
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.layout import Layout
from fedsim.vocabulary.arrays import Ints

if TYPE_CHECKING:
    from fedsim.tasks.base import Task
    from fedsim.tasks.model import ModelComponent

Rate = Annotated[float, Field(gt=0, le=1)]


class SubmodelsParams(Parameters):
    """Parameters of submodels."""

    reaches_all: ClassVar[bool] = True
    """Whether the part of rate 1 is needed, because the others never train some parameters."""

    rates: tuple[Rate, ...] = Field(default=(1.0, 0.5, 0.25, 0.125, 0.0625), min_length=1)
    """Size of each part as a share of the whole, which is 1; the largest first."""
    by: Literal["memory", "speed", "deadline"] = "memory"
    """Which part a client trains. ``memory``: the largest that fits into the memory of its device. ``speed``: clients
    are ordered by the time of a local step and divided into as many groups of equal size as there are parts; the
    fastest train the largest. ``deadline``: the largest with which a dispatch at nominal speed and rates ends before
    the schedule's deadline, or else the smallest. Where the memory of devices is known, a part must always fit."""

    @field_validator("rates")
    @classmethod
    def _in_order(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if any(larger <= smaller for larger, smaller in pairwise(rates)):
            raise ValueError("give the rates from the largest to the smallest, each once")
        if cls.reaches_all and rates[0] < 1:
            raise ValueError(
                f"without a part of rate 1, a part of the model is never trained: begin with 1, not {rates[0]:g}"
            )
        return rates


class Submodels(Component, ABC):
    """Divides a model into parts.

    Attributes:
        moves: whether the positions of a part change from round to round.
        static_statistics: whether running statistics of batch normalization are not trained, but computed from the
            training samples before an evaluation.
        nested: whether a local step trains one of the smaller parts within a client's part, drawn at random.
    """

    Params: ClassVar[type[Parameters]] = SubmodelsParams
    moves: ClassVar[bool] = False
    static_statistics: ClassVar[bool] = False
    nested: ClassVar[bool] = False
    params: Any

    def adapted(self, model: ModelComponent) -> ModelComponent:
        """The model that is divided: by default the scenario's."""
        return model

    def check(self, task: Task) -> None:
        """Refuse a task whose model cannot be divided."""
        if not isinstance(task, SupervisedTask):
            raise _refusal(f"the task {task.name} has no layers")
        if not task.model.takes_rate:
            raise _refusal(f"model {task.model.name} cannot be divided into parts")
        if self.moves and not task.model.any_units:
            raise _refusal(
                f"{task.model.name} has shortcuts between fixed channels, so its parts cannot move"
            )

    def part(self, task: SupervisedTask, rate: float) -> SupervisedTask:
        """The task with the part of a ``rate`` as its model."""
        return task.with_model(task.model.at(rate))

    def positions(self, whole: Layout, part: Layout, round: int) -> Ints:
        """Positions of the entries of a part in the whole vector, (P_k,).

        By default, a tensor of the part is the leading block of the whole tensor of its name.
        """
        tensors = zip(whole.names, whole.shapes, whole.offsets, strict=False)
        known = {name: (shape, offset) for name, shape, offset in tensors}
        pieces = [np.empty(0, dtype=np.int64)]
        channels = 0
        for name, shape in zip(part.names, part.shapes, strict=True):
            full, offset = known.get(name, ((), 0))
            if len(full) != len(shape) or any(n > m for n, m in zip(shape, full, strict=True)):
                raise _refusal(
                    f"'{name}' of a part has shape {shape}, which is not a block of "
                    + (f"shape {full} in the whole model" if name in known else "the whole model")
                )
            axes = [self.window(m, n, round) for n, m in zip(shape, full, strict=True)]
            if len(shape) == 2 and channels and full[1] > channels and full[1] % channels == 0:
                # The values of each channel of a flattened image stay together.
                size = full[1] // channels
                kept = self.window(channels, shape[1] // size, round)
                axes[1] = (kept[:, None] * size + np.arange(size)).reshape(-1)
            channels = full[0] if len(full) > 2 else 0 if len(full) == 2 else channels
            block = np.arange(math.prod(full)).reshape(full)[np.ix_(*axes)] + offset
            pieces.append(block.reshape(-1))
        positions: Ints = np.concatenate(pieces)
        return positions

    def window(self, full: int, count: int, round: int) -> Ints:
        """Which ``count`` of the ``full`` units of a layer a part has, ascending, (count,)."""
        return np.arange(count)


def _refusal(message: str) -> UserError:
    return UserError(
        message,
        where="server.submodels",
        hint="use mlp, a convolutional network or a ResNet, or a module of your own whose constructor takes model_rate "
        "(docs/submodels.md)",
    )
