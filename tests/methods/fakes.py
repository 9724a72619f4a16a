"""Updates written down, to put into the aggregation of a method."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.methods.base import Method, MethodContext
from fedsim.methods.mixins import with_averaged_buffers
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.layout import Layout


class Written:
    """The contributions of one aggregation as :class:`fedsim.methods.base.Updates`.

    Args:
        rows: vectors of each contribution, name to (C, P).
        columns: the arrays of ``Updates`` that differ from their defaults.
    """

    def __init__(
        self,
        rows: Mapping[str, Sequence[Sequence[float]]],
        *,
        version: int = 1,
        attributes: Mapping[str, float] | None = None,
        **columns: Sequence[int],
    ) -> None:
        self._rows = {
            name: torch.tensor(value, dtype=torch.float64) for name, value in rows.items()
        }
        count = len(next(iter(self._rows.values())))
        self.version, self.time_s, self.round = version, 0.0, 0
        self.attributes = dict(attributes or {})
        defaults = {
            "clients": range(count),
            "samples": [1] * count,
            "steps": [1] * count,
            "steps_assigned": [1] * count,
            "staleness": [0] * count,
            "groups": [0] * count,
            "multiplicity": [1] * count,
            "versions": [version - 1] * count,
            "rounds": [0] * count,
        }
        for name, default in defaults.items():
            setattr(self, name, np.array(columns.get(name, default), dtype=np.int64))
        self.learning_rates = np.ones(count)

    def __len__(self) -> int:
        return len(next(iter(self._rows.values())))

    def row(self, name: str, index: int) -> Tensor:
        return self._rows[name][index]

    def weighted_sum(
        self, name: str, weights: npt.ArrayLike, factors: npt.ArrayLike = 1.0
    ) -> Tensor:
        products = torch.as_tensor(np.asarray(weights, dtype=np.float64) * factors)
        return (products.unsqueeze(1) * self._rows[name]).sum(0)

    def mean(self, name: str, weights: npt.ArrayLike, otherwise: Tensor) -> Tensor:
        return self.weighted_sum(name, weights) if np.any(weights) else otherwise


def make(
    given: Mapping[str, Any], samples: Sequence[int], elements: int = 1, buffers: int = 0
) -> Method:
    """A method as a scenario names it, for clients with these samples; the model has ``buffers`` at its end."""
    options = dict(given)
    method_class = CATALOG.parts("method")[options.pop("name")]
    layout = Layout.of([("x", (elements,))], [("mean", (buffers,))] if buffers else [])
    return with_averaged_buffers(method_class, layout)(
        method_class.Params(**options),
        MethodContext(
            layout=layout,
            clients=len(samples),
            samples=np.array(samples, dtype=np.int64),
            learning_rate=lambda round_, time: 0.1,
            local_steps=np.ones(len(samples), dtype=np.int64),
            tensors=lambda: (torch.float64, torch.device("cpu")),
            seed=0,
        ),
    )
