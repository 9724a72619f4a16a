"""Step times drawn once per client from a distribution."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from pydantic import Field

from fedsim.devices import DeviceContext
from fedsim.devices.compute.base import ComputeModel, ComputeParams
from fedsim.randomness import Purpose
from fedsim.units import LONGEST_S, Duration
from fedsim.vocabulary.arrays import Floats


class DrawnParams(ComputeParams):
    """Parameters of step times drawn from a distribution."""

    redraw: float = Field(default=0.0, ge=0, le=1)
    """Probability that a client draws a new, lasting step time before a dispatch (FedCompass, appendix G.2)."""


class _Drawn(ComputeModel):
    """A step time drawn per client, independent of the number of clients."""

    def __init__(self, params: DrawnParams, context: DeviceContext) -> None:
        super().__init__(params, context)
        self.redraws = params.redraw > 0
        self._drawn = context.stream(Purpose.COMPUTE_PROFILE)
        self._redrawn = context.stream(Purpose.COMPUTE_PROFILE, 1)
        self._current: dict[int, tuple[int, float]] = {}

    def step_s(self) -> Floats:
        return self._quantiles(self._drawn.uniforms(np.arange(self.context.clients)))

    def redrawn_step_s(self, client: int, sequence: int) -> float:
        known = self._current.get(client)
        if known is not None and known[0] == sequence:
            return known[1]
        # The latest draw applies; searching backward makes this a function of (client, sequence) alone.
        latest = sequence
        while latest > 0 and self._redrawn.uniform(client, latest) >= self.params.redraw:
            latest -= 1
            if known is not None and latest == known[0]:
                self._current[client] = (sequence, known[1])
                return known[1]
        with np.errstate(over="ignore"):
            drawn = float(self._quantiles(np.array([self._drawn.uniform(client, latest)]))[0])
        # First draws are checked elsewhere; later ones are limited to the range of the clock.
        step = min(drawn, LONGEST_S)
        self._current[client] = (sequence, step)
        return step

    @abstractmethod
    def _quantiles(self, u: Floats) -> Floats: ...


class Lognormal(_Drawn):
    """Lognormal step times, truncated on either side; sigma 0.78 matches phones."""

    name = "lognormal"

    class Params(DrawnParams):
        median: Duration
        """Median step time."""
        sigma: float = Field(default=0.78, ge=0)
        """Standard deviation of the logarithm; 0.78 matches phones."""
        limit: float = Field(default=8.0, gt=1)
        """Largest ratio to the median, in either direction."""

    def _quantiles(self, u: Floats) -> Floats:
        from scipy.special import ndtri

        factor = np.exp(self.params.sigma * ndtri(u))
        step: Floats = np.clip(factor, 1 / self.params.limit, self.params.limit)
        return step * float(self.params.median)


class Normal(_Drawn):
    """Normal step times (FedCompass, section 5.1, with cv 0.3), truncated below to stay positive."""

    name = "normal"

    class Params(DrawnParams):
        mean: Duration
        """Mean step time."""
        cv: float = Field(default=0.3, ge=0)
        """Standard deviation as a share of the mean."""
        floor: float = Field(default=0.05, gt=0, lt=1)
        """The distribution is truncated below this share of the mean."""

    def _quantiles(self, u: Floats) -> Floats:
        from scipy.special import ndtr, ndtri

        if self.params.cv == 0:
            return np.full(u.shape, self.params.mean)
        lowest = ndtr((self.params.floor - 1) / self.params.cv)
        step: Floats = 1 + self.params.cv * ndtri(lowest + (1 - lowest) * u)
        return step * float(self.params.mean)


class Exponential(_Drawn):
    """Exponential step times (FedCompass, section 5.1), with a lower bound, so that no client is extremely fast."""

    name = "exponential"

    class Params(DrawnParams):
        mean: Duration
        """Mean step time."""
        floor: float = Field(default=0.01, ge=0, lt=1)
        """Smallest step time as a share of the mean; 0 for no limit, as in FedCompass's code."""

    def _quantiles(self, u: Floats) -> Floats:
        step: Floats = np.maximum(self.params.floor, -np.log(u))
        return step * float(self.params.mean)


class UniformTimes(_Drawn):
    """Step times distributed uniformly between two bounds."""

    name = "uniform"

    class Params(DrawnParams):
        low: Duration
        """Shortest step time."""
        high: Duration
        """Longest step time."""

    def _quantiles(self, u: Floats) -> Floats:
        step: Floats = self.params.low + (self.params.high - self.params.low) * u
        return step
