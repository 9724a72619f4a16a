"""Weights of stale updates, and clients' shares of the population, for asynchronous aggregation."""

from __future__ import annotations

import math
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

    def factor(self, staleness: FloatArray, version: int) -> FloatArray:
        """Weights for staleness counted in versions, elementwise, in the update to a version."""
        return np.ones_like(staleness)


class PolynomialStaleness(Parameters):
    """(s + 1)^-exponent for staleness s."""

    name: Literal["polynomial"] = "polynomial"
    """Kind of weight."""
    exponent: float = Field(default=0.5, allow_inf_nan=False)
    """How fast weights decrease (a). FedCompass's text gives 0.5; its published code computes (s + 1)^(+0.5), which
    weights stale updates *more* and is written -0.5 here."""

    def factor(self, staleness: FloatArray, version: int) -> FloatArray:
        """Weights for staleness counted in versions, elementwise, in the update to a version."""
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

    def factor(self, staleness: FloatArray, version: int) -> FloatArray:
        """Weights for staleness counted in versions, elementwise, in the update to a version."""
        return 1.0 / (self.slope * np.maximum(staleness - self.delay, 0.0) + 1.0)


class ReciprocalStaleness(Parameters):
    """1 up to a delay, then delay / s: the delay-adaptive steps of asynchronous SGD (method ``async_sgd``)."""

    name: Literal["reciprocal"]
    """Kind of weight."""
    delay: float = Field(default=10.0, gt=0)
    """Staleness up to which the weight is 1; in the theory the concurrency."""

    def factor(self, staleness: FloatArray, version: int) -> FloatArray:
        """Weights for staleness counted in versions, elementwise, in the update to a version."""
        result: FloatArray = self.delay / np.maximum(staleness, self.delay)
        return result


class FedAsmuStaleness(Parameters):
    """mu xi / (1 + mu xi) with xi = scale / (sqrt(t) (s + 1)^exponent) + offset, in the update to version t.

    FedASMU (Liu et al., AAAI 2024, equations 6 and 7), whose scale, exponent and offset are learned for each client;
    here they are constants. Use it as the mixing weight of ``fedasync`` with ``alpha: 1``.
    """

    name: Literal["fedasmu"]
    """Kind of weight."""
    mu: float = Field(default=1.0, gt=0)
    """Factor on xi (mu_alpha)."""
    scale: float = Field(default=1.0, gt=0)
    """Strength of the part that decreases (lambda)."""
    exponent: float = Field(default=0.5, ge=0)
    """How fast it decreases with the staleness (sigma)."""
    offset: float = Field(default=0.0, ge=0)
    """The part that does not decrease (iota)."""

    def factor(self, staleness: FloatArray, version: int) -> FloatArray:
        """Weights for staleness counted in versions, elementwise, in the update to a version."""
        decreasing = self.scale / (math.sqrt(version) * (staleness + 1.0) ** self.exponent)
        xi: FloatArray = self.mu * (decreasing + self.offset)
        return xi / (1 + xi)


Staleness = Annotated[
    PolynomialStaleness
    | ConstantStaleness
    | HingeStaleness
    | ReciprocalStaleness
    | FedAsmuStaleness,
    Field(discriminator="name"),
]
"""Weight of an update by its staleness s: the versions made between its dispatch and its arrival, 0 for a fresh one.
(Xie et al., arXiv:1903.03934, section 5.2, write t - tau for a counter that is s + 1 in the polynomial.)"""


class StalenessParams(Parameters):
    """Parameters of methods that weight updates by their staleness."""

    alpha: float = Field(default=0.9, gt=0, le=1)
    """Weight of a fresh update."""
    staleness: Staleness = PolynomialStaleness()
    """How the weight decreases with the number of versions made between dispatch and arrival: polynomial, constant,
    hinge, reciprocal or fedasmu."""
    staleness_at: Literal["arrival", "aggregation"] = "arrival"
    """When staleness is counted: when the update arrives, or when it is aggregated."""

    def weights_by_age(self, updates: Updates) -> FloatArray:
        """``alpha`` x the weight of each update's staleness, (C,)."""
        age = (
            updates.staleness
            if self.staleness_at == "arrival"
            else updates.version - 1 - updates.versions
        )
        return self.alpha * self.staleness.factor(age.astype(np.float64), updates.version)


POPULATION_WEIGHTS = "weights each update by its client's share of the whole population"
""":attr:`Method.weight_of_absent` of methods that use :func:`population_weights`."""


def population_weights(
    context: MethodContext, updates: Updates, weights: Literal["samples", "uniform"]
) -> FloatArray:
    """Shares p_i of the contributing clients in the whole population, (C,); all clients' shares sum to 1."""
    if weights == "uniform":
        return updates.multiplicity / context.clients
    result: FloatArray = updates.multiplicity * updates.samples / context.samples.sum()
    return result
