"""Weights of stale updates, and clients' shares of the population, for asynchronous aggregation."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import MethodContext, Updates
from fedsim.parts.component import Parameters

FloatArray = npt.NDArray[np.float64]


class ConstantStaleness(Parameters):
    """Equal weights."""

    name: Literal["constant"]
    """Kind of weight."""

    def factor(self, staleness: FloatArray) -> FloatArray:
        """Weights for staleness counted in versions, elementwise."""
        return np.ones_like(staleness)


class PolynomialStaleness(Parameters):
    """(s + 1)^-exponent for staleness s."""

    name: Literal["polynomial"] = "polynomial"
    """Kind of weight."""
    exponent: float = Field(default=0.5, allow_inf_nan=False)
    """How fast weights decrease (a). FedCompass's text gives 0.5; its published code computes (s + 1)^(+0.5), which
    weights stale updates *more* and is written -0.5 here."""

    def factor(self, staleness: FloatArray) -> FloatArray:
        """Weights for staleness counted in versions, elementwise."""
        result: FloatArray = (staleness + 1.0) ** -self.exponent
        return result


class HingeStaleness(Parameters):
    """1 up to a delay, then 1 / (slope x (s - delay) + 1)."""

    name: Literal["hinge"]
    """Kind of weight."""
    delay: float = Field(default=4.0, ge=0)
    """Staleness up to which the weight is 1 (b)."""
    slope: float = Field(default=10.0, gt=0)
    """How fast weights decrease after the delay (a)."""

    def factor(self, staleness: FloatArray) -> FloatArray:
        """Weights for staleness counted in versions, elementwise."""
        return 1.0 / (self.slope * np.maximum(staleness - self.delay, 0.0) + 1.0)


Staleness = Annotated[
    PolynomialStaleness | ConstantStaleness | HingeStaleness, Field(discriminator="name")
]
"""Weight of an update by its staleness s: the versions made between its dispatch and its arrival, 0 for a fresh one.
(Xie et al., arXiv:1903.03934, section 5.2, write t - tau for a counter that is s + 1 in the polynomial.)"""


class StalenessParams(Parameters):
    """Parameters of methods that weight updates by their staleness."""

    alpha: float = Field(default=0.9, gt=0, le=1)
    """Weight of a fresh update."""
    staleness: Staleness = PolynomialStaleness()
    """How the weight decreases with the number of versions made between dispatch and arrival: polynomial, constant or
    hinge."""
    staleness_at: Literal["arrival", "aggregation"] = "arrival"
    """When staleness is counted: when the update arrives, or when it is aggregated."""

    def weights_by_age(self, updates: Updates) -> FloatArray:
        """``alpha`` x the weight of each update's staleness, (C,)."""
        age = (
            updates.staleness
            if self.staleness_at == "arrival"
            else updates.version - 1 - updates.versions
        )
        return self.alpha * self.staleness.factor(age.astype(np.float64))


POPULATION_WEIGHTS = "weights each update by its client's share of the whole population"
""":attr:`Method.weight_of_absent` of methods that use :func:`population_weights`."""


def population_weights(
    context: MethodContext, updates: Updates, weights: Literal["samples", "uniform"]
) -> FloatArray:
    """Shares p_i of the contributing clients in the whole population, (C,); all clients' shares sum to 1."""
    if weights == "uniform":
        return updates.multiplicity / context.clients
    result: FloatArray = updates.multiplicity * updates.samples / int(context.samples.sum())
    return result
