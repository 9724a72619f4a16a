"""The duration of a dispatch's local steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from fedsim.devices.compute.base import ComputeModel, ComputeParams
from fedsim.devices.compute.slowdowns import slowdowns
from fedsim.errors import UserError
from fedsim.parts.functions import shown, wrong_return
from fedsim.randomness import Draws, Purpose
from fedsim.units import LONGEST_S, NS_PER_S
from fedsim.vocabulary.arrays import Floats, Ints

_PHASE, _NOISE = 1, 2
_inverse_normal = NormalDist().inv_cdf


class ComputeTimes:
    """Time of local steps, in whole nanoseconds.

    The steps of a dispatch are *work*, measured in nanoseconds; a slowdown makes work take longer. If step times are
    steady (no noise per step, no slowdowns), work is step time x steps and equals its duration.

    Attributes:
        step_s: nominal seconds of one local step of each client, (N,).
        steady: whether :meth:`step_ns` alone determines the duration.
        constant: whether :meth:`step_ns` is the same for all dispatches of a client.
        draws: whether :meth:`step_ns` needs random numbers that :meth:`prepare` computes.

    Args:
        model: provides nominal step times; its parameters define their variation.
    """

    def __init__(self, model: ComputeModel) -> None:
        params: ComputeParams = model.params
        context = model.context
        with np.errstate(over="ignore", invalid="ignore"):
            step_s = model.step_s()
        shape = (context.clients,)
        is_array = isinstance(step_s, np.ndarray) and not np.ma.isMaskedArray(step_s)
        if not is_array or step_s.shape != shape or step_s.dtype.kind not in "fiu":
            hint = f"return an array of real numbers of shape {shape}, one per client"
            raise wrong_return(type(model), "step_s", shown(step_s), hint)
        # Neither NaN nor beyond the range of the clock.
        sound = (step_s >= 0) & (step_s <= LONGEST_S)
        if not sound.all():
            client = int(np.flatnonzero(~sound)[0])
            raise UserError(
                f"the step time of client {client} is {step_s[client]:g} s",
                where="devices.compute",
                hint=f"step times are zero or more, and at most {LONGEST_S:g} s (a hundred years)",
            )
        outside = [
            client
            for perturbation in params.perturbations
            for client in perturbation.clients or ()
            if not 0 <= client < context.clients
        ]
        if outside:
            raise UserError(
                f"a perturbation names client {outside[0]}; clients are 0 to {context.clients - 1}",
                where="devices.compute.perturbations",
            )
        # Only this method of the model is kept, because its context holds the whole trace.
        self._redrawn_step_s: Any = model.redrawn_step_s if model.redraws else None
        self.step_s: Floats = step_s * context.compute_factor
        self._factor = np.broadcast_to(context.compute_factor, (context.clients,))
        # Memory views, because a million Python numbers do not fit in the cache.
        self._step_ns = (self.step_s * NS_PER_S).data
        self._jitter = Draws(context.stream(Purpose.COMPUTE_JITTER), context.clients)
        self._cv, self._normal = params.jitter.cv, params.jitter.name == "normal"
        variance = math.log1p(self._cv**2)
        self._log_mean, self._log_sd = -variance / 2, math.sqrt(variance)
        self._stragglers = params.stragglers
        self._straggling = Draws(context.stream(Purpose.STRAGGLER), context.clients)
        self._drift = params.drift
        self._phases = context.stream(Purpose.COMPUTE_JITTER, _PHASE)
        self._noise = params.step_noise
        self._noise_stream = context.stream(Purpose.COMPUTE_JITTER, _NOISE)
        self._slowdowns = slowdowns(params.perturbations, context, series=params.series)
        self._plain = not (model.redraws or self._stragglers.probability or self._drift.amplitude)
        self.constant = self._plain and not self._cv
        self.steady = not self._noise.sd and not self._slowdowns
        self.draws = bool(self._cv or self._stragglers.probability)
        self._last_key = (-1, -1, -1)
        self._last_ends: Ints = np.empty(0, dtype=np.int64)

    def prepare(self, clients: Ints, sequences: Ints) -> None:
        """Compute the random numbers of :meth:`step_ns` for some dispatches at once; arrays of shape (n,)."""
        if self._cv:
            self._jitter.prepare(clients, sequences)
        if self._stragglers.probability:
            self._straggling.prepare(clients, sequences)

    def step_ns(self, client: int, sequence: int, start_ns: int) -> int:
        """Work of each local step in the ``sequence``-th dispatch of ``client``, started at ``start_ns``.

        With noise per step, this is the mean.
        """
        nominal: float = self._step_ns[client]
        if self._cv:
            draw = _inverse_normal(self._jitter.uniform(client, sequence))
            if self._normal:
                nominal *= max(0.1, 1.0 + self._cv * draw)
            else:
                nominal *= math.exp(self._log_mean + self._log_sd * draw)
        if self._plain:
            return round(nominal)
        return round(nominal * self._special_factor(client, sequence, start_ns))

    def _special_factor(self, client: int, sequence: int, start_ns: int) -> float:
        factor = 1.0
        if self._redrawn_step_s is not None and self.step_s[client]:
            redrawn_s = self._redrawn_step_s(client, sequence)
            is_number = isinstance(redrawn_s, int | float | np.floating)
            if not (is_number and 0 <= redrawn_s <= LONGEST_S):
                hint, own = f"return 0 to {LONGEST_S:g} seconds", self._redrawn_step_s.__self__
                raise wrong_return(type(own), "redrawn_step_s", shown(redrawn_s), hint)
            factor *= redrawn_s * self._factor[client] / self.step_s[client]
        slow = self._stragglers
        if slow.probability:
            u = self._straggling.uniform(client, sequence)
            if u < slow.probability:
                factor *= (
                    slow.slowdown_min
                    + (slow.slowdown_max - slow.slowdown_min) * u / slow.probability
                )
        if self._drift.amplitude:
            turns = start_ns / NS_PER_S / self._drift.period + self._phases.uniform(client)
            factor *= 1.0 + self._drift.amplitude * math.sin(2 * math.pi * turns)
        return factor

    def _step_ends(self, client: int, sequence: int, step_ns: int, steps: int) -> Ints:
        """Work done at the end of each step of a noisy dispatch, (steps,)."""
        key = (client, sequence, steps)
        if key != self._last_key:
            noise = self._noise
            draws = self._noise_stream.generator(client, sequence).standard_normal(steps)
            # The process is stationary from its first step, and its mean factor is 1.
            x = np.empty(steps)
            last, fresh = 0.0, math.sqrt(1 - noise.correlation**2)
            for index, draw in enumerate(draws.tolist()):
                last = draw if index == 0 else noise.correlation * last + fresh * draw
                x[index] = last
            factors = np.exp(noise.sd * x - noise.sd**2 / 2)
            self._last_ends = np.rint(np.cumsum(factors) * step_ns).astype(np.int64)
            self._last_key = key
        return self._last_ends

    def work_ns(self, client: int, sequence: int, step_ns: int, steps: int) -> int:
        """Work of the first ``steps`` local steps of a dispatch."""
        if not self._noise.sd or not steps:
            return step_ns * steps
        return int(self._step_ends(client, sequence, step_ns, steps)[-1])

    def works_ns(self, client: int, sequence: int, step_ns: int, steps: int) -> Sequence[int]:
        """Work at the end of each local step of a dispatch, (steps,)."""
        if self._noise.sd and steps:
            ends: list[int] = self._step_ends(client, sequence, step_ns, steps).tolist()
            return ends
        return range(step_ns, step_ns * (steps + 1), step_ns) if step_ns else [0] * steps

    def steps_of(self, client: int, sequence: int, step_ns: int, steps: int, work_ns: int) -> int:
        """Number of local steps, out of ``steps``, completed by ``work_ns`` of work."""
        if self._noise.sd and steps:
            ends = self._step_ends(client, sequence, step_ns, steps)
            return int(np.searchsorted(ends, work_ns, side="right"))
        return min(steps, work_ns // step_ns) if step_ns else steps

    def finish(self, client: int, start_ns: int, work_ns: int) -> int:
        """When work that starts at ``start_ns`` is done without a pause."""
        slowdown = self._slowdowns.get(client)
        return start_ns + work_ns if slowdown is None else slowdown.finish(start_ns, work_ns)

    def worked(self, client: int, start_ns: int, until_ns: int) -> int:
        """Work done from ``start_ns`` to ``until_ns`` without a pause."""
        slowdown = self._slowdowns.get(client)
        return until_ns - start_ns if slowdown is None else slowdown.worked(start_ns, until_ns)
