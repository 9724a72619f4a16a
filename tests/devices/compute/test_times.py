"""How step times vary: noise, jitter, stragglers and drift."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.devices.compute.population import context, times


def test_noise_from_step_to_step_has_its_mean_spread_and_correlation() -> None:
    """20,000 steps of one dispatch: mean factor 1, sd of the logarithm 0.1, lag-1 correlation 0.7."""
    compute = times("values", context(), step=1, step_noise={"sd": 0.1, "correlation": 0.7})
    steps = 20_000
    step_ns = compute.step_ns(0, 0, 0)
    ends = np.array([compute.work_ns(0, 0, step_ns, steps)])
    x = np.log(np.diff(compute._step_ends(0, 0, step_ns, steps), prepend=0) / step_ns)
    assert ends[0] / step_ns / steps == pytest.approx(1.0, abs=0.01)
    assert x.std() == pytest.approx(0.1, abs=0.005)
    assert np.corrcoef(x[:-1], x[1:])[0, 1] == pytest.approx(0.7, abs=0.02)
    assert compute.steps_of(0, 0, step_ns, steps, int(ends[0])) == steps
    assert compute.steps_of(0, 0, step_ns, steps, int(ends[0]) - 1) == steps - 1


def test_jitter_and_stragglers_in_distribution() -> None:
    """Mean 1 and the coefficient of variation asked for; the share of stragglers and their mean factor."""
    compute = times("values", context(), step=1, jitter={"cv": 0.2})
    factors = np.array([compute.step_ns(0, k, 0) for k in range(20_000)]) / 1e9
    assert factors.mean() == pytest.approx(1.0, abs=0.005)
    assert factors.std() == pytest.approx(0.2, abs=0.005)
    slow = times("values", context(), step=1, stragglers={"probability": 0.1})
    factors = np.array([slow.step_ns(0, k, 0) for k in range(20_000)]) / 1e9
    assert (factors > 1).mean() == pytest.approx(0.1, abs=0.01)
    assert factors[factors > 1].mean() == pytest.approx(2.75, abs=0.05)
    assert factors.max() <= 4


def test_drift_swings_and_comes_back() -> None:
    """One period apart the factor is the same; over a period it goes both ways by the amplitude."""
    compute = times("values", context(), step=1, drift={"amplitude": 0.3, "period": 1000})
    factors = np.array([compute.step_ns(0, 0, round(t * 1e9)) for t in range(1000)]) / 1e9
    assert (factors.min(), factors.max()) == pytest.approx((0.7, 1.3), abs=1e-3)
    assert compute.step_ns(0, 0, 0) == pytest.approx(compute.step_ns(0, 0, 1000 * 10**9), abs=1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"step": [1.0, 2.0]}, r"2 step times for 1 client\b(?!s)"),
        ({"step": 1.0, "perturbations": [{"at": 0, "clients": [3], "factor": 2}]}, "client 3"),
    ],
)
def test_step_times_that_do_not_fit(params: dict[str, Any], message: str) -> None:
    """One clear error."""
    with pytest.raises(UserError, match=message):
        times("values", context(), **params)
