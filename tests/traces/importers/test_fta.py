"""Importing Failure Trace Archive tables: values, what is dropped and counted, and what is refused."""

from pathlib import Path

import pytest

from tests.traces.helpers import FTA_HEADER, export_fta, fta_row, import_, intervals, refused, write

US = 1_000_000


def test_both_states_reasons_and_windows(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.tab",
        fta_row(7, 1, 100.5, 200),
        fta_row(7, 0, 200, 300, "disk, power; fan"),
        fta_row(8, 1, 50, 60),
    )
    bundle = import_("fta", path)
    assert intervals(bundle) == {
        "7": [(int(100.5 * US), 200 * US)],
        "8": [(50 * US, 60 * US)],
    }
    assert intervals(bundle, state=0) == {"7": [(200 * US, 300 * US)], "8": []}
    assert [r["end_reason"] for r in bundle.tables["availability"].to_pylist()] == [
        None,
        "disk, power; fan",
        None,
    ]
    devices = bundle.devices.to_pylist()
    # Each node was observed between its own events; both repeat with the file's window, from 50 s to 300 s.
    assert [(d["window_start_us"], d["window_end_us"], d["period_us"]) for d in devices] == [
        (int(100.5 * US), 300 * US, 250 * US),
        (50 * US, 60 * US, 250 * US),
    ]
    assert [(d["source_id"], d["group"]) for d in devices] == [("host7", "1"), ("host8", "1")]
    assert bundle.manifest.epoch == "2006-01-01T00:00:00Z"
    assert bundle.manifest.epoch_weekday == 6
    assert bundle.manifest.clock == "utc"


@pytest.mark.parametrize("header", ["# " + FTA_HEADER, FTA_HEADER, "#x"])
def test_header_forms(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "e.tab", header, fta_row(7, 1, 0, 9))
    assert intervals(import_("fta", path)) == {"7": [(0, 9 * US)]}


def test_the_other_convention(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tab", fta_row(7, 1, 0, 9), fta_row(7, 0, 9, 12))
    bundle = import_("fta", path, available_type=0)
    assert intervals(bundle) == {"7": [(9 * US, 12 * US)]}
    rows, _ = export_fta(bundle, tmp_path / "out.tab", available_type=0)
    assert [r[5] for r in rows] == ["1", "0"]


def test_disorder_and_contradictions(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.tab",
        fta_row(7, 1, 20, 40, "a"),
        fta_row(7, 1, 0, 10),
        fta_row(7, 1, 30, 50, "b"),
        fta_row(7, 1, 60, 60),
        fta_row(7, 0, 45, 70),  # overlaps an available row
        fta_row(7, 0, 10, 20),  # only touches two
        fta_row(8, 0, 25, 30),  # another node
    )
    bundle = import_("fta", path)
    assert intervals(bundle)["7"] == [(0, 10 * US), (20 * US, 50 * US)]
    assert intervals(bundle, state=0) == {
        "7": [(10 * US, 20 * US)],
        "8": [(25 * US, 30 * US)],
    }
    counts = bundle.manifest.counts
    assert counts["contradictions"] == 1
    assert counts["overlapping"] == 1
    assert counts["zero_length"] == 1
    assert counts["out_of_order"] == 2
    merged = bundle.tables["availability"].to_pylist()[2]
    assert merged["end_reason"] == "b"


@pytest.mark.parametrize("mark", ["", "# "])
def test_columns_in_another_order_are_refused(mark: str, tmp_path: Path) -> None:
    header = FTA_HEADER.replace("node_id\tplatform_id", "platform_id\tnode_id")
    path = tmp_path / "e.tab"
    path.write_text(mark + header.rstrip() + "\n" + fta_row(7, 1, 0, 9) + "\n")
    assert "has the columns event_id, component_id, platform_id" in refused("fta", path)


def test_components_and_platforms(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.tab", fta_row(7, 1, 0, 9, component=1), fta_row(7, 1, 5, 20, component=2)
    )
    bundle = import_("fta", path, component="2")
    assert intervals(bundle) == {"7": [(5 * US, 20 * US)]}
    assert bundle.manifest.counts["other_components"] == 1
    path = write(
        tmp_path / "p.tab", fta_row(7, 1, 0, 9, platform=1), fta_row(7, 1, 5, 20, platform=2)
    )
    assert list(intervals(import_("fta", path))) == ["1/7", "2/7"]
