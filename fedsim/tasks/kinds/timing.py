"""The timing task: sizes and workloads, without a model to train."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from pydantic import Field, model_validator

from fedsim.parts.parameters import Parameters
from fedsim.tasks.base import ITEM_BYTES, Task, TaskContext
from fedsim.tasks.layout import Layout
from fedsim.units import Size

_ONLY_BLOCK = "model"
_TIMED_PARAMETERS = 1_000_000


class TimingTask(Task):
    """Clients, sizes and workloads without learning, for questions of timing."""

    name = "timing"
    learns = False

    class Params(Parameters):
        """Clients, sizes and workloads without learning, for questions of timing."""

        clients: int = Field(ge=1, le=10**7)
        """Number of clients."""
        parameters: int | None = Field(default=None, ge=1)
        """Parameters of the model; 4 bytes each (8 with float64) cross the network for every vector sent. The default
        is 1,000,000."""
        size: Size | None = Field(default=None, gt=0)
        """Size of the model, instead of ``parameters``: with 25MB, every vector sent has 25 MB before
        ``server.compression`` (``{up: {factor: 0.5}}``)."""
        names: dict[str, int] = {}
        """Named blocks of the parameters with their lengths, which add up to ``parameters``, so that some may be
        personal; by default one block."""
        samples: int = Field(default=200, ge=1, le=10**9)
        """Training samples per client; with local_epochs they determine the number of steps."""
        flops_per_sample: float | None = Field(default=None, gt=0)
        """Floating-point operations of one forward and backward pass on one sample, for compute models by FLOP/s."""
        activations: int = Field(default=0, ge=0)
        """Number of values per sample that a local step keeps for its backward pass; part of the memory that a device
        needs to be eligible."""

        def elements(self, item_bytes: int) -> int:
            """Parameters of the model if each takes ``item_bytes`` bytes."""
            if self.size is not None:
                return max(1, round(self.size / item_bytes))
            return self.parameters or _TIMED_PARAMETERS

        @model_validator(mode="after")
        def _one_size(self) -> TimingTask.Params:
            if self.size is not None and (self.parameters is not None or self.names):
                raise ValueError("give size, or parameters (and names), not both")
            lengths, parameters = list(self.names.values()), self.parameters or _TIMED_PARAMETERS
            if lengths and (min(lengths) < 1 or sum(lengths) != parameters):
                raise ValueError(
                    f"the named blocks have lengths {lengths}, which must be positive and add up to "
                    f"{parameters} parameters"
                )
            return self

    params: Params

    def __init__(self, params: Params, item_bytes: int = ITEM_BYTES["float32"]) -> None:
        self.params = params
        blocks = params.names or {_ONLY_BLOCK: params.elements(item_bytes)}
        self.layout = Layout.of((name, (length,)) for name, length in blocks.items())
        self.samples = np.full(params.clients, params.samples, dtype=np.int64)

    @classmethod
    def clients_key(cls, params: Params) -> str:
        return "clients"

    @classmethod
    def build(cls, params: Params, context: TaskContext) -> TimingTask:
        return cls(params, ITEM_BYTES[context.training.dtype])

    def flops_per_sample(self, frozen: Collection[str] = ()) -> float | None:
        return self.params.flops_per_sample

    def activations_per_sample(self) -> int:
        return self.params.activations
