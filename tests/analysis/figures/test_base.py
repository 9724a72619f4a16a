"""Bins of time, and points that are left out."""

import numpy as np
import pytest

from fedsim.analysis.figures import base


@pytest.mark.parametrize("duration_s", [0.0, 0.02, 1.0, 59.0, 3600.0, 86400.0 * 7, 86400.0 * 4000])
def test_bins_cover_the_run(duration_s: float) -> None:
    edges = base.time_bins(duration_s)
    assert edges[0] == 0.0
    assert edges[-1] >= duration_s
    assert 2 <= len(edges) <= base.MAX_BINS + 1
    assert (np.diff(edges) > 0).all()


def test_thinning_keeps_the_ends_and_what_is_asked() -> None:
    assert base.thin(5).tolist() == [0, 1, 2, 3, 4]
    rows = base.thin(10_001, 100, keep=[17])
    assert {0, 17, 10_000} <= set(rows.tolist())
    assert len(rows) == 101


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ([1.0, 2.0, 3.0], "Half arrived within 2 s of it, nine in ten within 2.8 s"),
        ([2.0] * 19 + [3.0], "Nine in ten arrived within 2 s of it"),
        ([2.0, 2.0], "All arrived within 2 s of it"),
    ],
)
def test_equal_quantiles_are_said_once(seconds: list[float], words: str) -> None:
    assert base.shares_within(np.array(seconds), "arrived", "of it") == words
