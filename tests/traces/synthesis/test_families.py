"""Families against their definitions."""

import numpy as np
import pytest

from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.synthesis.families import RenewalParams, _after_gap
from fedsim.units import DAY_S
from tests.traces.helpers import online_counts
from tests.traces.synthesis.making import intervals, make, sessions

HOUR_NS = 3_600_000_000_000


def test_always_and_periodic_groups_are_exact():
    always = make("always", 3, days=1)
    assert intervals(always, 2) == [(0.0, DAY_S)]
    assert AvailabilityIndex.from_bundle(always).online_until(0, 5) == 2**62
    turns = make("periodic", 4, days=1, availability={"groups": 3, "period": "12h", "share": 0.5})
    assert intervals(turns, 0) == [(0.0, 21600.0), (43200.0, 64800.0)]
    assert intervals(turns, 3) == intervals(turns, 0)
    assert intervals(turns, 1) == [(14400.0, 36000.0), (57600.0, 79200.0)]
    # The third group's turn crosses midnight.
    assert intervals(turns, 2) == [(0.0, 7200.0), (28800.0, 50400.0), (72000.0, 86400.0)]
    censored = turns.numpy("availability", "censored")[turns.device_rows("availability") == 2]
    assert censored.tolist() == [1, 0, 2]


def test_markov_is_memoryless():
    bundle = make("markov", 2000, availability={"session": 2000, "gap": 8000})
    whole = sessions(bundle)[bundle.numpy("availability", "censored") == 0]
    # Medians of whole sessions, of which the window's end cuts a few long ones.
    assert np.median(whole) == pytest.approx(2000 * np.log(2), rel=0.03)
    assert np.mean(whole > 4000) == pytest.approx(np.exp(-2), rel=0.05)
    assert sessions(bundle).sum() / (2000 * 7 * DAY_S) == pytest.approx(0.2, abs=0.01)
    index = AvailabilityIndex.from_bundle(bundle)
    assert len(index.online_clients(0)) / 2000 == pytest.approx(0.2, abs=0.03)


def test_slots_have_their_probability():
    bundle = make("bernoulli", 500, days=1, availability={"p": 0.2, "slot": "1h"})
    assert {start % 3600 for device in range(20) for start, _ in intervals(bundle, device)} == {0.0}
    assert sessions(bundle).sum() / (500 * DAY_S) == pytest.approx(0.2, abs=0.015)
    index = AvailabilityIndex.from_bundle(bundle)
    online = np.array([index.state_many(np.arange(500), h * HOUR_NS)[0] for h in range(24)])
    # Independent of the slot before.
    assert online[1:][online[:-1]].mean() == pytest.approx(0.2, abs=0.03)


def test_cosine_slots_follow_the_hour():
    bundle = make("cosine", 3000, availability={"mean": 0.2, "amplitude": 0.5, "peak_hour": 3.0})
    index = AvailabilityIndex.from_bundle(bundle)
    counts = online_counts(index, np.arange(7 * 24) * HOUR_NS + 300_000_000_000) / 3000
    hours = np.arange(24) + 1 / 12
    expected = 0.2 * (1 + 0.5 * np.cos(2 * np.pi * (hours - 3) / 24))
    assert counts.reshape(7, 24).mean(axis=0) == pytest.approx(expected, abs=0.012)


def test_the_daily_clock_is_inverted_exactly():
    params = RenewalParams(amplitude=0.95, peak_hour=3.0)
    generator = np.random.default_rng(0)
    time = generator.uniform(-5 * DAY_S, 7 * DAY_S, 20_000)
    gap = np.exp(generator.normal(9, 3, 20_000)) + 30
    end = _after_gap(params, time, gap, np.full(20_000, 3.0))
    angular = 2 * np.pi / DAY_S

    def clock(t):
        return t + 0.95 / angular * np.sin(angular * (t - 3 * 3600))

    assert (end > time).all()
    assert clock(end) - clock(time) == pytest.approx(gap, abs=1e-3, rel=1e-9)
