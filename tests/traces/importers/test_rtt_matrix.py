"""Importing round-trip matrices: values, what is dropped and counted, and what is refused."""

import gzip
import io
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.real_data
def test_real_planetlab(real_traces: Path) -> None:
    files = sorted((real_traces / "netlatency").glob("PlanetLab*.gz"))
    bundle = import_("rtt_matrix", *files, unit="ms")
    stack = np.array([np.loadtxt(io.BytesIO(gzip.decompress(path.read_bytes()))) for path in files])
    read_pairs = pairs(bundle)
    assert len(read_pairs) == 490 * 489
    generator = random.Random(0)
    for _ in range(200):
        src, dst = generator.sample(range(490), 2)
        expected = sorted(stack[:, src, dst])[1] / 1000
        assert read_pairs[f"n{src}", f"n{dst}"] == pytest.approx(expected, rel=1e-6)
    assert np.median(list(read_pairs.values())) == pytest.approx(0.135, abs=0.002)


@pytest.mark.real_data
def test_real_seattle(real_traces: Path) -> None:
    source = real_traces / "netlatency" / "seattle_every8th.zip"
    bundle = import_("rtt_matrix", source, unit="s")
    assert bundle.device_count == 99
    assert bundle.manifest.counts["slices"] == 86
    with zipfile.ZipFile(source) as archive:
        stack = np.array([np.loadtxt(io.BytesIO(archive.read(n))) for n in archive.namelist()])
    zeros = (stack == 0) & ~np.eye(99, dtype=bool)
    assert bundle.manifest.counts["zero_off_diagonal"] == zeros.sum() == 4826
    seen = np.ma.median(np.ma.masked_equal(stack[:, 3, 7], 0))
    assert pairs(bundle)["n3", "n7"] == pytest.approx(float(seen), rel=1e-6)
