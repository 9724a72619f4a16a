"""The figure of what crossed the network, against the rows of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedsim
from fedsim.analysis.figures.traffic import vectors
from tests.composition.worlds import quadratic

pytestmark = pytest.mark.usefixtures("without_reports")


def test_bytes_by_vector(tmp_path: Path) -> None:
    content = quadratic([[0, 1], [1, 2], [0, 1, 2]])
    content["server"] |= {
        "method": "scaffold",
        "compression": {
            "up": {"name": "cast", "vectors": ["delta"]},
            "down": {"name": "factor", "factor": 0.5},
        },
    }
    run = fedsim.run(content, tmp_path / "factor")
    figure = vectors(run)
    assert figure is not None
    # One number of 8 bytes per vector, 7 dispatches.
    assert figure.rows == [
        ("down", "model", "factor", 8, 4, 0.5, 28),
        ("down", "control", "factor", 8, 4, 0.5, 28),
        ("up", "delta", "cast", 8, 2, 0.25, 14),
        ("up", "control", "none", 8, 8, 1, 56),
    ]
    assert figure.finding == (
        "A compressed download has 8 B, 50.0% of its size without compression and an upload has 10 B, 62.5% of its "
        "size without compression."
    )
    assert sum(row[-1] for row in figure.rows[2:]) == run.dispatches["bytes_up"].sum()


def test_first_downloads_are_complete(tmp_path: Path) -> None:
    content = quadratic([[0, 1], [1, 2], [0, 1, 2]])
    content["server"] |= {"compression": {"down": "cast"}}
    run = fedsim.run(content, tmp_path / "cast")
    figure = vectors(run)
    assert figure is not None
    # Three of seven dispatches are a client's first.
    assert figure.rows[0] == ("down", "model", "cast", 8, 2, 0.25, 3 * 8 + 4 * 2)
    assert figure.rows[0][-1] == run.dispatches["bytes_down"].sum()


def test_without_compression_there_is_no_figure(tmp_path: Path) -> None:
    assert vectors(fedsim.run(quadratic([[0]]), tmp_path / "run")) is None
