"""Checkpoints in a folder that holds other things under the names of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedsim.runs import Checkpoints


@pytest.mark.parametrize("name", ["0", "1", "7"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "file"])
def test_links_and_files_are_neither_read_nor_replaced(
    tmp_path: Path, name: str, kind: str
) -> None:
    folder, elsewhere = tmp_path / "checkpoint", tmp_path / "elsewhere"
    folder.mkdir()
    Checkpoints(elsewhere).save({"a": torch.ones(1)}, {"whose": "a stranger's"})
    intruder = folder / name
    if kind == "file":
        intruder.write_text("not a checkpoint")
    else:
        intruder.symlink_to(elsewhere / "1" if kind == "link" else tmp_path / "nowhere")
    checkpoints = Checkpoints(folder)
    assert checkpoints.load() is None
    assert checkpoints.count_files() == 0
    assert checkpoints.damaged() == []
    for value in range(4):
        checkpoints.save({"a": torch.zeros(1)}, {"value": value})
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded[1] == {"value": 3}
    assert intruder.is_symlink() == (kind != "file")
    assert (elsewhere / "1" / "state.json").exists()
