"""The interface of compute models, and the time of a dispatch's local steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.components import Component, Parameters
from fedsim.devices.context import DeviceContext
from fedsim.errors import UserError
from fedsim.randomness import Purpose
from fedsim.units import NS_PER_S


class Jitter(Parameters):
    """Variation of a client's step time from dispatch to dispatch."""

    name: Literal["lognormal", "normal"] = "lognormal"
    """Distribution of the factor on the step time; normal is cut off below at 0.1."""
    cv: float = Field(default=0.0, ge=0)
    """Coefficient of variation of the factor; its mean is 1."""


class ComputeParams(Parameters):
    """Parameters of every compute model."""

    jitter: Jitter = Jitter()
    """Variation from dispatch to dispatch."""


class ComputeModel(Component, ABC):
    """How long a local step takes on each client's device."""

    def __init__(self, params: Any, context: DeviceContext) -> None:
        self.params = params
        self.context = context

    @abstractmethod
    def step_s(self) -> npt.NDArray[np.float64]:
        """Nominal seconds of one local step of each client, (N,)."""


class ComputeTimes:
    """Time of local steps: whole nanoseconds a step, so that "steps done by then" is exact.

    Args:
        step_s: nominal seconds of a local step of each client, (N,).
        params: jitter.
        context: population.
    """

    def __init__(
        self, step_s: npt.NDArray[np.float64], params: ComputeParams, context: DeviceContext
    ) -> None:
        if not np.all(np.isfinite(step_s)) or np.any(step_s < 0):
            client = int(np.flatnonzero(~(np.isfinite(step_s) & (step_s >= 0)))[0])
            raise UserError(
                f"the step time of client {client} is {step_s[client]!r} s",
                where="devices.compute",
                hint="step times are finite and zero or more",
            )
        self.step_s = step_s * context.compute_factor
        self._step_ns: list[float] = (self.step_s * NS_PER_S).tolist()
        self._stream = context.stream(Purpose.COMPUTE_JITTER)
        self._cv = params.jitter.cv
        self._normal = params.jitter.name == "normal"
        variance = math.log1p(self._cv**2)
        self._log_mean, self._log_sd = -variance / 2, math.sqrt(variance)

    def step_ns(self, client: int, sequence: int) -> int:
        """Nanoseconds of each local step in the ``sequence``-th dispatch of ``client``."""
        nominal = self._step_ns[client]
        if not self._cv:
            return round(nominal)
        draw = self._stream.normal(client, sequence)
        if self._normal:
            return round(nominal * max(0.1, 1.0 + self._cv * draw))
        return round(nominal * math.exp(self._log_mean + self._log_sd * draw))
