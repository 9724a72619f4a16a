"""Local work in two successive phases, and how much of each is done by a client that stops midway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import Cohort, LocalRule, Tensor, Trained, Trainer

IntArray = npt.NDArray[np.int64]
_ROUNDING = 1e-9


def phase_steps(cohort: Cohort, first: float, second: float) -> tuple[IntArray, IntArray]:
    """Steps that each dispatch has done in each of the two phases, two (B,) arrays.

    A whole dispatch takes ``first`` and ``second`` steps per assigned local step, rounded up. A client that did only
    some of its local steps has spent the time of those steps on the first phase, and only the remainder on the second.
    """
    assigned, done = cohort.steps_assigned, cohort.steps
    whole = [
        np.ceil(assigned * per_step - _ROUNDING).astype(np.int64) for per_step in (first, second)
    ]
    spent = np.floor(done * (first + second) + _ROUNDING).astype(np.int64)
    spent = np.where(done < assigned, spent, whole[0] + whole[1])
    in_first: IntArray = np.minimum(spent, whole[0])
    return in_first, spent - in_first


def run_phase(
    trainer: Trainer,
    cohort: Cohort,
    start: Tensor,
    steps: IntArray,
    rule: Callable[[Any], LocalRule | None] | None = None,
    **options: Any,
) -> Trained:
    """Training of a phase, whose steps need not be sorted as the cohort is.

    Args:
        trainer, cohort, start, options: as :meth:`fedsim.methods.base.Trainer.run`.
        steps: steps of each dispatch, (B,).
        rule: returns the local rule for an index of rows, which sorts tensors of the cohort in the order of training.
    """
    import torch

    if not steps.any():
        return Trained(start.clone(), None, start.new_zeros(len(steps)))
    if (np.diff(steps) <= 0).all():
        made = None if rule is None else rule(slice(None))
        return trainer.run(cohort, start, steps=steps, rule=made, **options)
    order = np.argsort(-steps, kind="stable")
    rows, back = (
        torch.as_tensor(index, device=start.device) for index in (order, np.argsort(order))
    )
    in_order = replace(
        cohort,
        clients=cohort.clients[order],
        sequences=cohort.sequences[order],
        learning_rates=cohort.learning_rates[rows],
    )
    made = None if rule is None else rule(rows)
    trained = trainer.run(in_order, start[rows], steps=steps[order], rule=made, **options)
    return replace(trained, model=trained.model[back], loss=trained.loss[back])
