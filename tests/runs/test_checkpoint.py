"""Checkpoints: the newest whole one is read, and files are of bounded size."""

import math
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsim.analysis.run import load_run
from fedsim.errors import UserError
from fedsim.learning.memory import Tensors
from fedsim.runs import Checkpoints
from fedsim.runs.checkpoint import STATE, save_tensors
from tests.runs.written import started


def test_a_checkpoint_is_written_in_files_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most as many tensors are requested before a write as fit into a file; a larger one has its own file."""
    monkeypatch.setattr("fedsim.runs.checkpoint._FILE_BYTES", 64)
    sizes = {"a": 4, "b": 4, "c": 1, "d": 30, "e": 8, "f": 1}
    alive = weakref.WeakSet[Any]()
    most = 0

    def make(name: str) -> torch.Tensor:
        nonlocal most
        value = torch.full((sizes[name],), float(ord(name)), dtype=torch.float64)
        alive.add(value)
        most = max(most, sum(other.nbytes for other in alive if len(other) < 30))
        return value

    checkpoints = Checkpoints(tmp_path / "checkpoint", "1")
    checkpoints.save(Tensors({name: partial(make, name) for name in sizes}), {"version": 1})
    assert most <= 64 + 64
    assert len(list((tmp_path / "checkpoint" / "1").glob("*.safetensors"))) == 5
    loaded = checkpoints.load()
    assert loaded is not None
    assert {name: value.tolist() for name, value in loaded[0].items()} == {
        name: [float(ord(name))] * size for name, size in sizes.items()
    }
    (tmp_path / "checkpoint" / "1" / "tensors-2.safetensors").unlink()
    with pytest.raises(UserError, match="resume"):
        checkpoints.load()


def test_checkpoint_keeps_the_last_good_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint", "1")
    (tmp_path / "checkpoint").write_text("no folder")
    assert checkpoints.load() is None
    flat = torch.arange(6, dtype=torch.float64)
    checkpoints.save({"x": flat, "view": flat[2:4], "again": flat}, {"version": 1, "a": 0.1})
    newer = {"version": 2, "answers": [math.inf, 0.1]}
    checkpoints.save({"x": flat * 2, "half": flat.to(torch.bfloat16)}, newer)
    loaded = checkpoints.load()
    assert loaded is not None
    tensors, state = loaded
    assert state == newer
    assert torch.equal(tensors["x"], flat * 2)
    assert tensors["half"].dtype == torch.bfloat16
    checkpoints.save({"x": flat * 3}, {"version": 3})
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["2", "3"]
    # A save that was killed half way leaves the ones before, and goes with the next.
    (tmp_path / "checkpoint" / ".fedsim-tmp-1").mkdir()
    assert checkpoints.load() is not None
    # A damaged newer one is noticed, and the older one used.
    (tmp_path / "checkpoint" / "3" / "tensors-0.safetensors").write_bytes(b"x")
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded[1] == newer
    file = tmp_path / "checkpoint" / "2" / "state.json"
    file.write_text(file.read_text().replace("2", "3"))
    with pytest.raises(UserError, match="resume"):
        checkpoints.load()
    checkpoints.save({"x": flat * 4}, {"version": 4})
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["3", "4"]
    (tmp_path / "checkpoint" / "epoch3").mkdir()
    checkpoints.remove()
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["epoch3"]
    (tmp_path / "checkpoint" / "epoch3").rmdir()
    checkpoints.remove()
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("state", ["{", "[]", '{"version": "1"}', '{"share": -1}', "9" * 9999])
def test_a_checkpoint_of_another_type_is_damaged(tmp_path: Path, state: str) -> None:
    """Whatever its checksum."""
    (tmp_path / "1").mkdir()
    STATE.write(tmp_path / "1", {"run": "1", "tensors": [], "state": state})
    checkpoints = Checkpoints(tmp_path, "1")
    assert checkpoints.newest_state() == {}
    assert [path for path, _ in checkpoints.damaged()] == [tmp_path / "1" / STATE.file]
    with pytest.raises(UserError, match="damaged"):
        checkpoints.load()


def test_checkpoint_views_and_shared_tensors(tmp_path: Path) -> None:
    flat = torch.arange(6, dtype=torch.float32)
    save_tensors(tmp_path / "m.safetensors", {"a": flat, "b": flat, "c": flat.view(2, 3).T})
    _, writer = started(tmp_path / "run")
    writer.finish()
    save_tensors(tmp_path / "run" / "model.safetensors", {"a": flat, "c": flat.view(2, 3).T})
    assert torch.equal(load_run(tmp_path / "run").model()["c"], flat.view(2, 3).T)
