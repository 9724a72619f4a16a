"""The population: per-client columns of compute speed, memory, energy, links and availability."""

from __future__ import annotations

from dataclasses import dataclass

from fedsim.network.base import NetworkContext
from fedsim.vocabulary.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class DeviceContext(NetworkContext):
    """Inputs of a compute or availability model.

    Attributes:
        batch_samples: samples of one mini-batch of each client, (N,) int64.
        flops_per_sample: floating-point operations of a forward and backward pass on one sample, if counted; a number
            or one per client, (N,).
        eligible: clients whose device can run the workload, (N,) bool.
        compute_factor: the method's cost of a local step, relative to one pass; a number or one per client, (N,).
    """

    batch_samples: Ints
    flops_per_sample: Floats | float | None
    eligible: Bools
    compute_factor: Floats | float = 1.0
