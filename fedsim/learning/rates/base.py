"""The interface of learning-rate schedules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from fedsim.components import Component

By = Literal["round", "time"]
"""What a schedule counts: rounds or simulated seconds."""


class RateSchedule(Component, ABC):
    """Changes the optimizer's learning rate in the course of a run."""

    def __init__(self, params: Any) -> None:
        self.params = params

    @abstractmethod
    def factor(self, round_number: int, time_s: float) -> float:
        """Factor on the learning rate of a dispatch of this round, handed out at this simulated second."""


class CountingSchedule(RateSchedule):
    """A function of t alone, the rounds or seconds that the parameter ``by`` names."""

    def factor(self, round_number: int, time_s: float) -> float:
        """:meth:`factor_at` the round or the time."""
        return self.factor_at(time_s if self.params.by == "time" else float(round_number))

    @abstractmethod
    def factor_at(self, t: float) -> float:
        """Factor on the learning rate at t."""
