"""What exporters write: intervals in whole seconds, and series under names of files."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters._output import available_rows, links, offsets, whole_seconds
from tests.traces.cases import bundle_of

S = 1_000_000


def with_series(*series: str, **columns: Any) -> TraceBundle:
    """Two pieces of 5 s and 3 s per series, which begins at 10 s."""
    table = {
        "series_id": [name for name in series for _ in range(2)],
        "direction": ["down"] * (2 * len(series)),
        "start_us": [10 * S, 15 * S] * len(series),
        "dur_us": [5 * S, 3 * S] * len(series),
        "rate_bps": [1e6, 2e6] * len(series),
    }
    return bundle_of({"a": []}, tables={"network_series": {**table, **columns}})


def test_intervals_are_sorted_by_device_and_start() -> None:
    rows = available_rows(bundle_of({"a": [], "b": [(5, 9), (20, 30)], "c": [(1, 2)]}))
    assert list(zip(*map(list, rows), strict=True)) == [(1, 5, 9), (1, 20, 30), (2, 1, 2)]
    assert offsets(rows, 3).tolist() == [0, 0, 2, 3]


def test_intervals_are_rounded_and_counted() -> None:
    spans = [(0, 2 * S), (3 * S + 1, 4 * S - 1), (5 * S + 100, 5 * S + 200)]
    counts: dict[str, int] = {}
    rows = whole_seconds(available_rows(bundle_of({"a": spans})), counts)
    assert (rows.start.tolist(), rows.end.tolist()) == ([0, 3], [2, 4])
    assert counts == {"rounded": 2, "vanished": 1}


def test_a_series_begins_at_zero_and_has_the_name_of_a_file() -> None:
    link, other = links(with_series("lab/1", "lab-2"))
    assert (link.series_id, link.file_name, other.file_name) == ("lab/1", "lab_1", "lab-2")
    assert link.edges_us.tolist() == [0, 5 * S, 8 * S]
    assert link.rate_bps.tolist() == [1e6, 2e6]


def test_two_series_of_one_file_name_are_refused() -> None:
    with pytest.raises(UserError, match="'lab/1' and 'lab_1' would have the same file name"):
        list(links(with_series("lab/1", "lab_1")))


def test_an_unknown_rate_is_refused() -> None:
    with pytest.raises(UserError, match="network_series row 1 has no rate"):
        list(links(with_series("a", rate_bps=[1e6, None])))
