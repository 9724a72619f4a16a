"""Learning rates that follow the round or the simulated time. One file each."""

from __future__ import annotations

from collections.abc import Callable

from fedsim.learning.rates.base import RateSchedule as RateSchedule
from fedsim.parts.functions import returned_number
from fedsim.scenario.training import Training


def learning_rate(training: Training) -> Callable[[int, float], float]:
    """The local learning rate as a function of round and simulated seconds.

    The function raises a UserError if a user's schedule returns anything but a finite factor of at least 0.
    """
    lr: float = training.optimizer.params.lr
    schedule: RateSchedule = training.lr_schedule.create()

    def rate(round_number: int, time_s: float) -> float:
        factor = schedule.factor(round_number, time_s)
        return lr * returned_number(type(schedule), "factor", factor)

    return rate
