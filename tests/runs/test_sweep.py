"""``sweep.json``: written and read back, and refused where it is not what fedsim wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.files.checksums import file_sha256, stamped
from fedsim.runs.sweep import SWEEP_FILE, SWEEP_FORMAT, SweepEntry, SweepRecord, read_sweep

RECORD = SweepRecord(
    "small", "small.yaml", (SweepEntry("lr=0.1", 0, {"training.optimizer.lr": 0.1}, "abc"),)
)


def rewrite(folder: Path, **changes: Any) -> None:
    """Change the content, with a checksum that fits."""
    document = json.loads((folder / SWEEP_FILE).read_text())
    del document["sha256"]
    (folder / SWEEP_FILE).write_text(json.dumps(stamped({**document, **changes})))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    assert read_sweep(tmp_path) == RECORD


def test_a_folder_without_the_file_is_no_sweep(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a sweep folder"):
        read_sweep(tmp_path)


def test_a_change_is_noticed(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    path = tmp_path / SWEEP_FILE
    path.write_text(path.read_text().replace('"abc"', '"abd"'))
    with pytest.raises(UserError, match="it has changed since fedsim wrote it"):
        read_sweep(tmp_path)


def test_a_later_format_asks_for_an_update(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    rewrite(tmp_path, format=SWEEP_FORMAT + 1)
    with pytest.raises(UserError, match="written by a later version of fedsim") as caught:
        read_sweep(tmp_path)
    assert "update fedsim" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["..", "", "a/b", "/etc", "a\\b", 3])
def test_a_run_lies_in_the_folder_of_its_sweep(name: Any, tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    rewrite(tmp_path, runs=[{"run": name, "seed": 0, "values": {}, "digest": ""}])
    with pytest.raises(UserError, match="is not the name of a folder"):
        read_sweep(tmp_path)


def test_other_files_of_the_sweep_are_checked(tmp_path: Path) -> None:
    index = tmp_path / "index.csv"
    index.write_text("run,seed\n")
    record = SweepRecord("small", None, (), files={"index.csv": file_sha256(index)})
    record.require_intact(tmp_path, "index.csv")
    record.require_intact(tmp_path, "without-checksum")
    index.write_text("run,seed,lr\n")
    with pytest.raises(UserError, match="it has changed since fedsim wrote it"):
        record.require_intact(tmp_path, "index.csv")
    index.unlink()
    with pytest.raises(UserError, match="No such file"):
        record.require_intact(tmp_path, "index.csv")
