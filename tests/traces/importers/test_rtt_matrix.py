"""Importing round-trip matrices: values, what is dropped and counted, and what is refused."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fedsim.parts.catalog import CATALOG
from tests.traces.helpers import import_, put, refused


def pairs(bundle: Any) -> dict[tuple[str, str], float]:
    return {
        (row["src"], row["dst"]): row["rtt_s"] for row in bundle.tables["rtt_matrix"].to_pylist()
    }


def test_rtt_units_must_be_said(tmp_path: Path) -> None:
    path = put(tmp_path / "m", "0\t20\n30\t0\n")
    with pytest.raises(ValidationError, match="unit"):
        CATALOG.parts("importer")["rtt_matrix"].Params()
    bundle = import_("rtt_matrix", path, unit="ms")
    assert pairs(bundle) == pytest.approx({("n0", "n1"): 0.02, ("n1", "n0"): 0.03})
    assert bundle.devices.column("group").to_pylist() == ["n0", "n1"]
    assert "try unit=ms" in refused("rtt_matrix", path, unit="s")
    seconds = put(tmp_path / "s", "0,0.02\n0.03,0\n")
    assert "try unit=s" in refused("rtt_matrix", seconds, unit="ms")
    negative = put(tmp_path / "n", "0 2\n-1 0\n")
    assert ":2: 1 is '-1'\n  it must be a number of at least 0" in refused(
        "rtt_matrix", negative, unit="ms"
    )
    with warnings.catch_warnings(action="error"):
        huge = put(tmp_path / "h", "0 2\n1e308 0\n")
        assert ":2: 1 is '1e308'" in refused("rtt_matrix", huge, unit="ms")


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (",101,205,317\n101,0,12,30.5\n205,12,0,44\n317,30.5,44,0\n", True),
        (",0,1\n0,0,12\n1,12,0\n", True),
        ("0,10,20,30\n10,0,12,30.5\n20,12,0,44\n30,30.5,44,0\n", True),
        ("0,10,20,30\n10,0,12,31\n20,12,0,44\n30,31,44,0\n", False),
        ("0,30,20.5,30\n30,0,12,31\n20.5,12,0,44\n30,31,44,0\n", False),
    ],
)
def test_names_of_nodes_are_no_times(text: str, is_refused: bool, tmp_path: Path) -> None:
    path = put(tmp_path / "m.csv", text)
    if is_refused:
        assert "numbers its nodes" in refused("rtt_matrix", path, unit="ms")
    else:
        assert len(import_("rtt_matrix", path, unit="ms").devices) == 4


def test_rtt_zero_and_missing_pairs_are_unknown(tmp_path: Path) -> None:
    path = put(tmp_path / "m", "0 0 5\n- 0 7\n6 nan 0\n\n")
    bundle = import_("rtt_matrix", path, unit="ms")
    assert set(pairs(bundle)) == {("n0", "n2"), ("n1", "n2"), ("n2", "n0")}
    assert bundle.manifest.counts == {
        "slices": 1,
        "zero_off_diagonal": 1,
        "missing_cells": 2,
        "unknown_pairs": 3,
    }


def test_the_median_of_several_files_counts(tmp_path: Path) -> None:
    paths = [put(tmp_path / f"D_{v}", f"0 {v}\n{v} 0\n") for v in (30, 10, 50)]
    median = import_("rtt_matrix", *paths, unit="ms")
    assert pairs(median) == pytest.approx({("n0", "n1"): 0.03, ("n1", "n0"): 0.03})


def require_medians(bundle: Any, slices: list[Any]) -> None:
    """Every pair has the median of the slices (s) that are not 0, by masked arrays."""
    table = bundle.tables["rtt_matrix"].to_pandas()
    src, dst = (table[name].astype(str).str[1:].astype(int) for name in ("src", "dst"))
    expected = np.ma.median(np.ma.masked_equal(np.array(slices), 0), axis=0)
    np.testing.assert_allclose(table["rtt_s"], expected[src, dst], rtol=1e-6)
    off = ~np.eye(bundle.device_count, dtype=bool)
    assert len(table) == expected[off].count()


@pytest.mark.real_data
def test_real_planetlab(real_traces: Path) -> None:
    files = sorted((real_traces / "netlatency").glob("PlanetLab*.gz"))
    bundle = import_("rtt_matrix", *files, unit="ms")
    slices = [pd.read_csv(path, sep=r"\s+", header=None).to_numpy() / 1000 for path in files]
    require_medians(bundle, slices)
    assert bundle.tables["rtt_matrix"].num_rows == 490 * 489


@pytest.mark.real_data
def test_real_seattle(real_traces: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(real_traces / "netlatency" / "seattle_every8th.zip") as archive:
        files = [Path(archive.extract(name, tmp_path)) for name in archive.namelist()[:20]]
    bundle = import_("rtt_matrix", *files, unit="s")
    assert bundle.device_count == 99
    slices = [pd.read_csv(path, sep=r"\s+", header=None).to_numpy() for path in files]
    zeros = (np.array(slices) == 0) & ~np.eye(99, dtype=bool)
    assert bundle.manifest.counts["zero_off_diagonal"] == zeros.sum() > 0
    require_medians(bundle, slices)


@pytest.mark.parametrize(
    "text",
    [
        "sep=;\n0;10\n10;0\n",
        "0,10\n,\n10,0\n",
        "0\t10\t\n10\t0\t\n",
        "# pairs\n0 10\n10 0\n",
    ],
)
def test_lines_without_numbers_and_tabs_at_the_end_do_not_count(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.txt").write_text(text)
    bundle = import_("rtt_matrix", tmp_path / "m.txt", unit="ms")
    assert [row["rtt_s"] for row in bundle.tables["rtt_matrix"].to_pylist()] == 2 * [
        pytest.approx(0.01)
    ]
