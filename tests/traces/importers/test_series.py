"""Links of one name."""

from __future__ import annotations

from pathlib import Path

from tests.traces.helpers import export, import_, refused


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "walk").write_text("0 1\n1 2\n")
    bundle = import_("pensieve", tmp_path)
    assert bundle.device_ids.to_pylist() == ["x/walk", "y/walk"]
    export("pensieve", bundle, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["x_walk", "y_walk"]
    message = refused("pensieve", tmp_path / "x" / "walk", tmp_path / "y" / "walk")
    assert "has the same name 'walk'" in message
