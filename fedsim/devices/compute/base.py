"""The interface of compute models, and the parameters of the variation of step times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from fedsim.devices import DeviceContext
from fedsim.parts.component import Component, Parameters
from fedsim.traces.parameters import TraceParameters
from fedsim.units import Duration
from fedsim.vocabulary.arrays import Bools, Floats


class Jitter(Parameters):
    """Variation of a client's step time per dispatch; all steps of a dispatch share one factor."""

    name: Literal["lognormal", "normal"] = "lognormal"
    """Distribution of the factor on the step time; normal is truncated below at 0.1 (FedCompass, section 5.1)."""
    cv: float = Field(default=0.0, ge=0, le=1000)
    """Coefficient of variation of the factor; its mean is 1."""


class StepNoise(Parameters):
    """Variation from step to step: the factor is exp(x) with x an AR(1) process within a dispatch."""

    sd: float = Field(default=0.0, ge=0, le=20)
    """Standard deviation of x; 0.05 to 0.1 matches measured mini-batch times."""
    correlation: float = Field(default=0.7, ge=0, lt=1)
    """Correlation of x between successive steps; measured values are 0.6 to 0.77."""


class Stragglers(Parameters):
    """Randomly chosen slow dispatches."""

    probability: float = Field(default=0.0, ge=0, le=1)
    """Probability that a dispatch is slow."""
    slowdown_min: float = Field(default=1.5, ge=1, le=1_000_000)
    """Smallest factor on the step time of a slow dispatch."""
    slowdown_max: float = Field(default=4.0, ge=1, le=1_000_000)
    """Largest factor; the factor is uniform between the two."""

    @model_validator(mode="after")
    def _ordered(self) -> Stragglers:
        if self.slowdown_max < self.slowdown_min:
            raise ValueError("slowdown_max is smaller than slowdown_min")
        return self


class Drift(Parameters):
    """A slow change of speed: the factor is a sine with a separate phase per client."""

    amplitude: float = Field(default=0.0, ge=0, lt=1)
    """Largest relative change of the step time."""
    period: Duration = Field(default=86_400.0, gt=0)
    """Period of the sine."""


class Perturbation(Parameters):
    """A scripted change of speed during a span of simulated time."""

    at: Duration
    """When it begins."""
    until: Duration | None = None
    """When it ends; by default never."""
    clients: list[int] | None = None
    """Affected clients; by default all."""
    factor: float = Field(gt=0)
    """Factor on the time of a step: 2 is half the speed, 0.5 twice the speed."""

    @model_validator(mode="after")
    def _has_a_span(self) -> Perturbation:
        if self.until is not None and self.until <= self.at:
            raise ValueError("until must come after at")
        return self


class ComputeParams(TraceParameters):
    """Parameters of every compute model."""

    jitter: Jitter = Jitter()
    """Variation per dispatch."""
    step_noise: StepNoise = StepNoise()
    """Variation per step."""
    stragglers: Stragglers = Stragglers()
    """Randomly chosen slow dispatches."""
    drift: Drift = Drift()
    """Slow change of speed."""
    perturbations: list[Perturbation] = []
    """Scripted changes of speed."""
    series: bool = True
    """Replay the trace bundle's compute_series (contention, throttling), if it has one."""


class ComputeModel(Component, ABC):
    """Duration of a local step on each client's device; its ``Params`` derive from :class:`ComputeParams`.

    Attributes:
        needs_flops: whether step times depend on the operations of the model, which are then counted.
        redraws: whether a client's nominal step time may change from dispatch to dispatch.
    """

    Params: ClassVar[type[Parameters]] = ComputeParams
    needs_flops: ClassVar[bool] = False
    redraws: bool = False

    def __init__(self, params: Any, context: DeviceContext) -> None:
        self.params = params
        self.context = context

    @abstractmethod
    def step_s(self) -> Floats:
        """Nominal seconds of one local step of each client, (N,)."""

    def redrawn_step_s(self, client: int, sequence: int) -> float:
        """Nominal seconds of a local step in the ``sequence``-th dispatch, if :attr:`redraws`."""
        raise TypeError(f"{self.name} does not redraw step times")


class ComputeTable:
    """The first row of each client's device in the bundle's ``compute`` table.

    Args:
        context: the population; its bundle has a table ``compute``.
        task: use only rows of this task; ``*`` for any.
    """

    def __init__(self, context: DeviceContext, task: str = "*") -> None:
        self._bundle = context.traces
        devices = self._bundle.device_rows("compute")
        usable = devices >= 0
        if task != "*":
            usable &= self._bundle.texts("compute", "task") == task
        rows = np.flatnonzero(usable)[::-1]
        first = np.full(self._bundle.device_count, -1, dtype=np.int64)
        first[devices[rows]] = rows
        self._rows = first[context.device_rows]

    def column(self, name: str) -> Floats:
        """A numeric column, (N,); NaN where unknown."""
        if not self._bundle.has("compute", name):
            return np.full(len(self._rows), np.nan)
        values = np.append(self._bundle.numpy("compute", name).astype(np.float64), np.nan)
        taken: Floats = values[self._rows]
        return taken

    def is_inference(self) -> Bools:
        """Whether each client's row was measured for inference, (N,)."""
        inference = self._bundle.texts("compute", "phase") == "inference"
        return np.append(inference, False)[self._rows]
