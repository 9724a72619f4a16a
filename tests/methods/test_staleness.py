"""Weights of stale updates against their closed forms."""

import numpy as np
import pytest

from fedsim.methods.asynchronous import (
    ConstantStaleness,
    FedAsmuStaleness,
    HingeStaleness,
    PolynomialStaleness,
    ReciprocalStaleness,
)


def test_staleness_weights() -> None:
    ages = np.arange(6.0)
    assert PolynomialStaleness().factor(ages, 4) * 0.9 == pytest.approx(
        [0.9, 0.636396, 0.519615, 0.45, 0.402492, 0.367423], abs=5.1e-7
    )
    assert PolynomialStaleness(exponent=0.0).factor(ages, 4).tolist() == [1.0] * 6
    assert ConstantStaleness(name="constant").factor(ages, 4).tolist() == [1.0] * 6
    # Xie et al., section 5.2: 1 up to b, then 1 / (a (s - b) + 1).
    assert HingeStaleness(name="hinge", delay=3, slope=2).factor(ages, 4).tolist() == [
        1,
        1,
        1,
        1,
        1 / 3,
        1 / 5,
    ]
    assert ReciprocalStaleness(name="reciprocal", delay=2).factor(ages, 4).tolist() == [
        1,
        1,
        1,
        2 / 3,
        2 / 4,
        2 / 5,
    ]
    # xi = 3 / (sqrt(4) (s + 1)) + 0.5 and 2 xi / (1 + 2 xi).
    asmu = FedAsmuStaleness(name="fedasmu", mu=2, scale=3, exponent=1, offset=0.5)
    assert asmu.factor(ages[:3], 4) == pytest.approx([4 / 5, 2.5 / 3.5, 2 / 3])
