"""Figures of bundles as text and as data, side by side."""

import io
import re

import pytest
from rich.console import Console

from fedsim.traces.inspection import as_data, sections, write_text
from fedsim.traces.statistics import describe
from fedsim.traces.synthesis import NetworkSeriesParams, Synthesis, synthesize


def test_text_and_data_show_bundles_side_by_side(hand):
    phones = synthesize(
        Synthesis(
            population="phone_mostly_on",
            devices=80,
            network_series=NetworkSeriesParams(series=2, length=60.0),
        )
    )
    described = [describe(hand), describe(phones)]
    out = io.StringIO()
    write_text(described, Console(file=out, width=200))
    text = out.getvalue()
    for expected in ("case", "phone_mostly_on", "Wed 20.0", "session: weibull", "below 0.1 Mbit/s"):
        assert expected in text
    assert "remaining time if picked online, percentiles 10 / 50 / 90" in text
    rows = sections(described[0])
    assert rows["How long"]["sessions of at least 1 h"].endswith("%")
    assert rows["How long"]["online for 1 h more, if picked online"].endswith("%")
    days = rows["How long"]["sessions per device and day, percentiles 10 / 50 / 90"]
    assert re.fullmatch(r"\d+\.\d / \d+\.\d / \d+\.\d  \(mean \d+\.\d\)", days)
    assert re.search(r"% at \d\d:00, ", text)
    # The share of the time has one mean.
    (moments,) = (line for line in text.splitlines() if "at full hours" in line)
    assert "mean" not in moments
    assert any("by hour" in label for rows in sections(described[0]).values() for label in rows)
    described[0].origin["caveats"] = "x" * 10_000
    assert len(sections(described[0])["Origin"]["caveats"]) < 3000
    data = as_data(described[0])
    assert data["availability"]["by_weekday"][0] is None
    assert data["availability"]["sessions_s"]["percentiles"]["100"] == 14400.0
    assert data["compute"]["sample_s"]["mean"] == pytest.approx(0.15)
