"""Tables from an importer's columns."""

from __future__ import annotations

import numpy as np

from fedsim.traces.importers._assemble import (
    devices_table,
    observed_tables,
    per_device,
    texts,
)


def test_devices_have_their_own_windows_and_one_kind() -> None:
    table = devices_table(["a", "b"], window_end_us=np.array([5, 7]), kind="phone")
    rows = table.to_pydict()
    assert rows["device_id"] == rows["source_id"] == ["a", "b"]
    assert rows["window_start_us"] == [0, 0]
    assert rows["window_end_us"] == [5, 7]
    assert rows["kind"] == ["phone", "phone"]
    assert rows["valid"] == [True, True]


def test_intervals_are_clipped_to_the_window_and_marked_at_its_edges() -> None:
    counts: dict[str, int] = {}
    start, end = np.array([50, 0, 20]), np.array([200, 10, 40])
    tables, intervals = observed_tables(
        ["a", "b"], np.array([1, 0, 0]), start, end, (5, 100), counts
    )
    rows = tables["availability"].to_pydict()
    assert rows["device_id"] == ["a", "a", "b"]
    assert rows["start_us"] == [5, 20, 50]
    assert rows["end_us"] == [10, 40, 100]
    assert rows["censored"] == [1, 0, 2]
    assert intervals.counts == counts


def test_nan_becomes_unknown_and_text_fills_a_column() -> None:
    values = {"bandwidth_bps": np.array([1.0, 2.0]), "rtt_s": np.array([0.1, np.nan])}
    rows = per_device(["a", "b"], "network", direction="down", **values).to_pydict()
    assert rows["device_id"] == ["a", "b"]
    assert rows["direction"] == ["down", "down"]
    assert rows["bandwidth_bps"] == [1.0, 2.0]
    assert rows["rtt_s"] == [0.1, None]


def test_a_missing_field_is_no_text() -> None:
    assert texts([{"a": 1}, {"a": None}, {}], "a") == ["1", None, None]
