"""A folder is claimed for a run without loss of what it holds."""

import errno
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.files.locks import locked
from fedsim.runs import RunFolder
from fedsim.runs.folder import Status
from tests.runs.synthetic_runs import build_run


def claim(path: Path, *, overwrite: bool = False) -> None:
    with RunFolder(path).claimed(overwrite=overwrite):
        pass


def test_existing_folder_is_refused_and_overwriting_spares_the_users_files(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=5, hours=1, cohort=3)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    RunFolder(tmp_path / "run").update_info(user_code={"python_parts/Mine.py:Mine": None})
    for folder in ("models", "checkpoint", "elsewhere", "python_parts"):
        (tmp_path / "run" / folder).mkdir(exist_ok=True)
        for file in ("version-best.safetensors", "version-00000001.safetensors", "Mine.py", "m.py"):
            (tmp_path / "run" / folder / file).touch()
    RunFolder(tmp_path / "run").close(Status.COMPLETE)
    listed = [name for name in RunFolder(tmp_path / "run").read_info()["files"] if "/" in name]
    assert listed == ["models/version-00000001.safetensors", "python_parts/Mine.py"]
    (tmp_path / "run" / "tracking").symlink_to(tmp_path / "run" / "elsewhere")
    with pytest.raises(UserError, match="exists"):
        claim(tmp_path / "run")
    before = {path: path.stat().st_size for path in (tmp_path / "run").rglob("*")}
    (tmp_path / "run" / "report.html").mkdir()
    with pytest.raises(UserError, match=r"report\.html: is a folder"):
        claim(tmp_path / "run", overwrite=True)
    (tmp_path / "run" / "report.html").rmdir()
    assert {path: path.stat().st_size for path in before} == before
    claim(tmp_path / "run", overwrite=True)
    left = sorted(p.name for p in (tmp_path / "run").iterdir())
    assert left == [".lock", "checkpoint", "elsewhere", "models", "notes.txt", "python_parts"]
    assert not (tmp_path / "run" / listed[0]).exists() | (tmp_path / "run" / listed[1]).exists()
    kept = {folder: len(list((tmp_path / "run" / folder).iterdir())) for folder in left[1:4]}
    assert kept == {"checkpoint": 4, "elsewhere": 4, "models": 3}


def test_overwriting_removes_what_trackers_left_and_spares_what_others_added(
    tmp_path: Path,
) -> None:
    tracking = tmp_path / "run" / "tracking"
    build_run(tmp_path / "run", hours=1, finish=False)
    tracking.mkdir()
    (tracking / "metrics[1].jsonl").touch()
    RunFolder(tmp_path / "run").close(Status.COMPLETE)
    for name in ("notes.txt", "metrics1.jsonl"):
        (tracking / name).touch()
    claim(tmp_path / "run", overwrite=True)
    assert sorted(each.name for each in tracking.iterdir()) == ["metrics1.jsonl", "notes.txt"]


def test_a_run_in_progress_is_to_be_followed(tmp_path: Path) -> None:
    build_run(tmp_path / "run", hours=1, finish=False)
    with pytest.raises(UserError) as refusal:
        claim(tmp_path / "run")
    assert "continue with: fedsim resume " in str(refusal.value.hint)
    with locked(tmp_path / "run"), pytest.raises(UserError) as refusal:
        claim(tmp_path / "run")
    assert "in progress; to watch it: fedsim watch " in str(refusal.value.hint)


def test_a_record_that_may_not_be_read_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_run(tmp_path / "run", hours=1)
    read = Path.read_text

    def refuse(path: Path, *arguments: Any, **options: Any) -> str:
        if path.name == "run.json":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UserError, match=r"run\.json: cannot be read: Permission denied"):
        claim(tmp_path / "run", overwrite=True)


def test_folder_that_is_no_run_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "model.safetensors").write_text("mine")
    for manifest in ("", "{}", '{"format": 3, "name": "my extension"}'):
        (tmp_path / "thesis" / "run.json").write_text(manifest)
        with pytest.raises(UserError, match="not a run folder"):
            claim(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "model.safetensors").read_text() == "mine"


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("content", [None, "{"])
def test_a_run_without_its_record_is_not_called_another_folder(
    tmp_path: Path, finish: bool, content: str | None
) -> None:
    build_run(tmp_path / "run", hours=1, finish=finish)
    folder = RunFolder(tmp_path / "run")
    folder.info.unlink() if content is None else folder.info.write_text(content)
    for use in (
        folder.read_info,
        lambda: claim(folder.path, overwrite=True),
        lambda: claim(folder.path),
    ):
        with pytest.raises(UserError) as refusal:
            use()
        assert refusal.value.where == str(folder.info)
        assert "or remove the folder of the run and repeat" in str(refusal.value.hint)


@pytest.mark.parametrize("beneath", [True, False])
def test_unwritable_place_is_the_users_error(tmp_path: Path, beneath: bool) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "run" if beneath else tmp_path / "file"
    with pytest.raises(UserError):
        claim(path)


def test_a_refused_process_leaves_the_lock_of_another(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        before = sorted(path.name for path in (tmp_path / "run").iterdir())
        with pytest.raises(UserError, match="another fedsim process"):
            claim(tmp_path / "run")
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


@pytest.mark.parametrize(
    ("record", "run", "next_step"),
    [
        (None, "run", "continue with: fedsim resume"),
        ("sweep.json", "seed0", "repeat the command"),
        ("board.json", f"{TEMPORARY_PREFIX}x/0-silos", "repeat the command"),
    ],
)
def test_a_run_without_room_is_continued_as_it_was_begun(
    tmp_path: Path, record: str | None, run: str, next_step: str
) -> None:
    if record is not None:
        (tmp_path / "all" / record).parent.mkdir()
        (tmp_path / "all" / record).touch()
    folder = build_run(tmp_path / "all" / run, clients=5, hours=1, cohort=3).folder
    assert f"free space, then {next_step}" in str(folder.no_room())


def test_a_run_of_a_flower_app_is_begun_again(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run", clients=5, hours=1, cohort=3).folder
    folder.update_info(app="server:app", status=Status.INTERRUPTED)
    assert str(folder.no_room()).endswith("that began the run, with --overwrite")
    with pytest.raises(UserError, match=r"or replace the run with --overwrite \(overwrite=True\)$"):
        claim(folder.path)
    claim(folder.path, overwrite=True)
