"""Learning rates that follow the round or the simulated time: the interface of their schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

from fedsim.parts.component import Component, Parameters
from fedsim.parts.functions import shown, wrong_return
from fedsim.scenario.training import Training


class RateSchedule(Component, ABC):
    """A learning-rate schedule: a factor on the optimizer's learning rate."""

    @abstractmethod
    def factor(self, round_number: int, time_s: float) -> float:
        """Factor for a dispatch of this round, sent at this simulated time; finite and at least 0."""


class CountingParams(Parameters):
    """Parameters of schedules that are a function of t."""

    by: Literal["round", "time"] = "round"
    """Unit of t: rounds or simulated seconds."""


class CountingSchedule(RateSchedule):
    """A function of t only, in rounds or seconds according to the parameter ``by``."""

    Params: ClassVar[type[Parameters]] = CountingParams

    def factor(self, round_number: int, time_s: float) -> float:
        return self.factor_at(time_s if self.params.by == "time" else float(round_number))

    @abstractmethod
    def factor_at(self, t: float) -> float:
        """Factor on the learning rate at t."""


def learning_rate(training: Training) -> Callable[[int, float], float]:
    """The local learning rate as a function of round and simulated seconds."""
    lr: float = training.optimizer.params.lr
    schedule: RateSchedule = training.lr_schedule.create()

    def at(round_number: int, time_s: float) -> float:
        factor = schedule.factor(round_number, time_s)
        if not (isinstance(factor, int | float) and 0 <= factor < math.inf):
            hint = "return a finite number of at least 0"
            raise wrong_return(type(schedule), "factor", shown(factor), hint)
        return lr * factor

    return at
