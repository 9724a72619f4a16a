"""The inputs of a population's parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.randomness import Purpose, Stream

if TYPE_CHECKING:
    from fedsim.traces.bundle import TraceBundle


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """Inputs of a compute, availability or network model.

    Attributes:
        clients: number of clients N.
        seed: the scenario's seed.
        folder: folder of the scenario.
        bundle: the trace bundle, if any.
        device_rows: row of each client's device in the bundle's ``devices`` table, (N,) int64; empty without a bundle.
        batch_samples: samples of one mini-batch of each client, (N,) int64.
        flops_per_sample: floating-point operations of a forward and backward pass on one sample, if counted.
        eligible: clients whose device can run the workload, (N,) bool.
        compute_factor: the method's cost of a local step, relative to one pass.
    """

    clients: int
    seed: int
    folder: Path
    bundle: TraceBundle | None
    device_rows: npt.NDArray[np.int64]
    batch_samples: npt.NDArray[np.int64]
    flops_per_sample: float | None
    eligible: npt.NDArray[np.bool_]
    compute_factor: float = 1.0

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """A random stream of the population."""
        return Stream(self.seed, purpose, *keys)
