"""The daily clock is inverted exactly."""

import numpy as np
import pytest

from fedsim.traces.synthesis.families.renewal import DAY_S, Renewal


def test_the_daily_clock_is_inverted_exactly():
    family = Renewal(Renewal.Params(amplitude=0.95, peak_hour=3.0))
    generator = np.random.default_rng(0)
    time = generator.uniform(-5 * DAY_S, 7 * DAY_S, 20_000)
    gap = np.exp(generator.normal(9, 3, 20_000)) + 30
    end = family._after_gap(time, gap, np.full(20_000, 3.0))
    angular = 2 * np.pi / DAY_S

    def clock(t):
        return t + 0.95 / angular * np.sin(angular * (t - 3 * 3600))

    assert (end > time).all()
    assert clock(end) - clock(time) == pytest.approx(gap, abs=1e-3, rel=1e-9)
