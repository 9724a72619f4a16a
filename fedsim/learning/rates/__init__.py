"""Learning rates that follow the round or the simulated time."""

from __future__ import annotations

from collections.abc import Callable

from fedsim.learning.rates.base import RateSchedule as RateSchedule
from fedsim.scenario.training import Training


def learning_rate(training: Training) -> Callable[[int, float], float]:
    """The local learning rate as a function of round and simulated seconds."""
    lr: float = training.optimizer.params.lr
    schedule: RateSchedule = training.lr_schedule.create()
    return lambda round_number, time_s: lr * schedule.factor(round_number, time_s)
