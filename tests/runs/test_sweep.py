"""``sweep.json``: written and read back, and refused where it is not what fedsim wrote."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.files.checksums import file_sha256, stamped
from fedsim.runs.records import SWEEP
from fedsim.runs.sweep import SweepEntry, SweepRecord, read_sweep

RECORD = SweepRecord(
    "small", "small.yaml", (SweepEntry("lr=0.1", 0, {"training.optimizer.lr": 0.1}, "abc"),)
)


def rewrite(folder: Path, **changes: Any) -> None:
    """Change the content, with a checksum that fits."""
    document = json.loads((folder / SWEEP.file).read_text())
    del document["sha256"]
    (folder / SWEEP.file).write_text(json.dumps(stamped({**document, **changes})))


def rename(folder: Path, name: Any) -> None:
    rewrite(folder, runs=[{"run": name, "seed": 0, "values": {}, "digest": ""}])


def edit(folder: Path) -> None:
    path = folder / SWEEP.file
    path.write_text(path.read_text().replace('"abc"', '"abd"'))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: (folder / SWEEP.file).unlink(), "not a sweep folder"),
        (edit, "it has changed since fedsim wrote it"),
        (partial(rename, name=3), "Input should be a valid string"),
        (lambda folder: rewrite(folder, format=SWEEP.format + 1), "update fedsim"),
        *(
            (partial(rename, name=name), "is not the name of a folder")
            for name in ("..", "", "a/b", "/etc", "a\\b")
        ),
    ],
)
def test_what_was_written_is_read_and_what_was_changed_is_refused(
    change: Callable[[Path], None], problem: str, tmp_path: Path
) -> None:
    RECORD.write(tmp_path)
    assert read_sweep(tmp_path) == RECORD
    change(tmp_path)
    with pytest.raises(UserError) as caught:
        read_sweep(tmp_path)
    assert problem in str(caught.value)


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
