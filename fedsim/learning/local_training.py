"""Local training of a group of dispatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.learning.device import uploaded
from fedsim.learning.kernels.base import Correction, Kernel
from fedsim.learning.optimizers import Optimizer
from fedsim.methods.base import Cohort, Collected, Corrected, LocalRule, Midway, Step, Trained
from fedsim.methods.mixins import STATE
from fedsim.scenario.training import Training
from fedsim.tasks.layout import Layout
from fedsim.vocabulary.arrays import Ints

# Rows start at multiples of this many entries, so that vectorized arithmetic treats all rows alike.
_ROW_MULTIPLE = 64


def row_matrix(rows: int, elements: int, *, like: Tensor) -> Tensor:
    """An uninitialized (rows, elements) matrix whose rows are aligned."""
    stride = -(-elements // _ROW_MULTIPLE) * _ROW_MULTIPLE
    return torch.empty(rows, stride, dtype=like.dtype, device=like.device)[:, :elements]


def active_rows(steps: Ints) -> Ints:
    """Number of dispatches, sorted by ``steps`` (most first), that perform local step 0, 1, ...; (most steps,)."""
    most = int(steps[0]) if len(steps) else 0
    counts: Ints = np.searchsorted(-steps, -np.arange(most), side="left")
    return counts


def _is_known(rule: LocalRule | None, collect: Sequence[Collected]) -> bool:
    """Whether a kernel can apply this rule, and its steps yield everything that is to be collected."""
    if not isinstance(rule, Corrected):
        return False
    if rule.pull:
        return not collect
    return rule.constant is not None and set(collect) <= {"mean_gradient"}


# Its changes keep their precision in float32, and are far below that of parameters.
_TINY_RATE = 1e-20


class LocalTrainer:
    """The :class:`fedsim.methods.base.Trainer` of one worker.

    Step k runs on the prefix of rows that are still working, so that different numbers of steps cost nothing extra.
    """

    def __init__(self, kernel: Kernel, layout: Layout, training: Training) -> None:
        self.kernel = kernel
        self._trainable = layout.trainable
        self._size = layout.size
        self._new_optimizer: Callable[[], Optimizer] = training.optimizer.create
        self._clip_norm = training.clip_norm
        self._plain = kernel.fused and self._new_optimizer().is_plain and training.clip_norm is None
        self._scratch: dict[str, Tensor] = {}
        # The cohort trained last whose optimizer goes on from an earlier state, and the state, updated in place.
        self._continued: tuple[Cohort, Tensor] | None = None

    @torch.no_grad()
    def run(
        self,
        cohort: Cohort,
        start: Tensor,
        *,
        rule: LocalRule | None = None,
        steps: Ints | None = None,
        learning_rate_scale: Tensor | None = None,
        move: bool = True,
        collect: Sequence[Collected] = (),
        phase: int = 0,
        midway: Midway | None = None,
    ) -> Trained:
        """Train the cohort, as :meth:`fedsim.methods.base.Trainer.run`; gradients are collected after clipping."""
        steps = cohort.steps if steps is None else steps
        if len(steps) > 1 and (np.diff(steps) > 0).any():
            raise ValueError("steps must be sorted, most first")
        rows, trainable = len(steps), self._trainable
        session = self.kernel.session(cohort.clients, cohort.sequences, steps, phase)
        if self.kernel.fixed_memory:
            weights = self._work_space("models", rows, start)
        else:
            weights = row_matrix(rows, self._size, like=start)
        weights.copy_(start)
        fused = self._plain and move and learning_rate_scale is None and midway is None
        corrected = fused and self.kernel.corrects and _is_known(rule, collect)
        sums = {} if corrected else {name: self._zeros(rows, start) for name in collect}
        mean, change = sums.get("mean_gradient"), sums.get("change")
        loss = start.new_zeros(rows)
        counts = active_rows(steps)
        divisors = loss
        if collect:
            divisors = uploaded(np.maximum(steps, 1), start.device).to(start.dtype)
        if fused and rule is None and not collect:
            loss = session.descend(weights, cohort.learning_rates, counts)
            counts = counts[:0]
        elif corrected:
            assert isinstance(rule, Corrected)
            rates = cohort.learning_rates / rule.divisor
            still = rates == 0
            has_still = bool(collect) and bool(still.any())
            if has_still:
                # A tiny change shows the gradients, which none would not; it is taken back.
                rates = rates.masked_fill(still, _TINY_RATE)
            if rule.target is not None:
                correction = Correction(weights, weights, rule.target, rule.pull)
            else:
                zeros = self._zeros(rows, start)
                correction = Correction(start, zeros, constant=rule.constant)
            loss = session.descend(weights, rates, counts, correction)
            counts = counts[:0]
            if collect:
                assert correction.constant is not None
                mean = correction.change.div_((rates * divisors).neg().unsqueeze(1))
                mean.sub_(correction.constant)
            if has_still:
                torch.where(still.unsqueeze(1), start, weights, out=weights)
        gradients = self._work_space("gradients", rows, weights) if len(counts) else weights
        optimizer = self._new_optimizer()
        state = cohort.memory.get(STATE, cohort.down.get(STATE))
        if state is not None:
            self._continue(optimizer, cohort, state)
        rates = cohort.learning_rates.unsqueeze(1)
        if learning_rate_scale is not None:
            rates = rates * learning_rate_scale[:trainable]
        for step, active in enumerate(counts.tolist()):
            at, gradient = weights[:active], gradients[:active]
            if midway is not None and step == midway[0]:
                midway[1](at)
            loss[:active] += session.gradients(step, at, gradient)
            if self._clip_norm is not None:
                norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
                gradient.mul_((self._clip_norm / (norms + 1e-6)).clamp_(max=1.0))
            if mean is not None:
                mean[:active].add_(gradient)
            if rule is not None:
                rule(Step(step, gradient, at, slice(0, active)))
                if trainable < self._size:
                    # Buffers have no gradient; changes of their entries by a rule are ignored.
                    gradient[:, trainable:].zero_()
            if not move:
                continue
            at, gradient = at[:, :trainable], gradient[:, :trainable]
            if change is None:
                optimizer.step(at, gradient, rates[:active])
            else:
                moved = change[:active, :trainable]
                optimizer.step(at, gradient, rates[:active], moved)
                torch.add(start[:active, :trainable], moved, out=at)
        if mean is not None and not corrected:
            mean /= divisors.unsqueeze(1)
        if change is not None:
            buffers = change[:, trainable:]
            torch.sub(weights[:, trainable:], start[:, trainable:], out=buffers)
        model = weights.clone() if self.kernel.fixed_memory else weights
        loss = self.kernel.loss(loss, cohort.clients, steps)
        return Trained(model, mean, loss, change)

    def _continue(self, optimizer: Optimizer, cohort: Cohort, state: Tensor) -> None:
        if self._continued is not None and self._continued[0] is cohort:
            raise UserError(
                "the method trains more than once in a dispatch, so its optimizer has no single state to continue from",
                where="training.optimizer_state",
                hint="use optimizer_state: reset",
            )
        self._continued = cohort, state.clone()
        optimizer.load(self._continued[1])

    def optimizer_state(self, cohort: Cohort) -> Tensor:
        """The state after the training of the cohort, (B, elements)."""
        assert self._continued is not None
        assert self._continued[0] is cohort
        state, self._continued = self._continued[1], None
        return state

    def release(self) -> None:
        """Free the work space."""
        self._scratch.clear()

    def _zeros(self, rows: int, like: Tensor) -> Tensor:
        return row_matrix(rows, self._size, like=like).zero_()

    def _work_space(self, name: str, rows: int, like: Tensor) -> Tensor:
        """A matrix that the next group reuses; entries of gradients that no kernel writes stay zero."""
        held = self._scratch.get(name)
        if held is None or len(held) < rows or held.dtype != like.dtype:
            # Rounded up to a power of two, so that it is rarely reallocated.
            doubled = 1 << (rows - 1).bit_length() if self.kernel.fixed_memory else rows
            held = self._scratch[name] = self._zeros(doubled, like)
        return held[:rows]
