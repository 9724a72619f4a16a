"""Slots against their probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.synthesis.families.renewal import DAY_S
from tests.traces.online import online_counts
from tests.traces.synthesis.making import intervals, make, sessions

HOUR_NS = 3_600_000_000_000


def test_slots_have_their_probability():
    bundle = make("bernoulli", 500, days=1, availability={"p": 0.2, "slot": "1h"})
    assert {start % 3600 for device in range(20) for start, _ in intervals(bundle, device)} == {0.0}
    assert sessions(bundle).sum() / (500 * DAY_S) == pytest.approx(0.2, abs=0.015)
    index = AvailabilityIndex.from_bundle(bundle)
    online = np.array([index.is_online_many(np.arange(500), h * HOUR_NS) for h in range(24)])
    # Independent of the slot before.
    assert online[1:][online[:-1]].mean() == pytest.approx(0.2, abs=0.03)


def test_cosine_slots_follow_the_hour():
    bundle = make("cosine", 3000, availability={"mean": 0.2, "amplitude": 0.5, "peak_hour": 3.0})
    index = AvailabilityIndex.from_bundle(bundle)
    counts = online_counts(index, np.arange(7 * 24) * HOUR_NS + 300_000_000_000) / 3000
    hours = np.arange(24) + 1 / 12
    expected = 0.2 * (1 + 0.5 * np.cos(2 * np.pi * (hours - 3) / 24))
    assert counts.reshape(7, 24).mean(axis=0) == pytest.approx(expected, abs=0.012)
