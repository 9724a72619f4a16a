"""Exporting to Pensieve's cooked traces: round trips, and what the format cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.errors import UserError
from tests.traces.helpers import export, import_


def test_pensieve_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    (folder / "b").write_text("3.25\t9.0\n4.0\t0.1\n")
    (folder / "README.md").write_text("not a trace")
    bundle = import_("pensieve", folder)
    assert export("pensieve", bundle, tmp_path / "out") == {"series": 2, "other_direction": 0}
    assert (tmp_path / "out" / "a").read_text() == "0.0\t1.5\n0.5\t1.5\n2.0\t0.25\n"
    again = import_("pensieve", tmp_path / "out")
    for name in bundle.tables:
        assert again.tables[name].equals(bundle.tables[name])
    with pytest.raises(UserError, match="no series for up"):
        export("pensieve", bundle, tmp_path / "up", direction="up")
    with pytest.raises(UserError, match="is a file"):
        export("pensieve", bundle, folder / "a")
