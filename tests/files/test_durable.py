import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.files.durable import (
    TEMPORARY_PREFIX,
    is_disk_full,
    remove_temporaries,
    replacing,
    replacing_folder,
    write_text,
)
from fedsim.files.locks import locked


def test_a_file_is_replaced_whole_and_a_link_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "a.txt", tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    write_text(path, "old")
    write_text(path, "new")
    assert (path.read_text(), path.is_symlink(), victim.read_text()) == ("new", False, "precious")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.txt", "victim"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_files_reach_the_disk_before_they_get_their_names_and_the_names_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that a power cut cannot turn into an empty file under the name of a complete one."""
    log: list[tuple[str, str]] = []

    def name(inode: int) -> str:
        """The name that an inode has at that moment, without what is random in it."""
        paths = [tmp_path, *tmp_path.rglob("*")]
        path = next(path for path in paths if path.stat().st_ino == inode)
        parts = path.relative_to(tmp_path).parts
        return "/".join("new" if part.startswith(TEMPORARY_PREFIX) else part for part in parts)

    def fsync(file: int) -> None:
        log.append(("flush", name(os.fstat(file).st_ino)))

    monkeypatch.setattr(os, "fsync", fsync)
    for rename in ("replace", "rename"):
        real = getattr(os, rename)

        def renaming(old: Path, new: Path, real: Callable[..., None] = real) -> None:
            log.append(("rename", new.name))
            real(old, new)

        monkeypatch.setattr(os, rename, renaming)
    write_text(tmp_path / "a", "1")
    assert log == [("flush", "new"), ("rename", "a"), ("flush", "")]
    log.clear()
    with replacing_folder(tmp_path / "f") as temporary:
        (temporary / "b").write_text("1")
    assert log == [("flush", "new/b"), ("flush", "new"), ("rename", "f"), ("flush", "")]


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(IsADirectoryError), replacing(path) as temporary:
        temporary.write_bytes(tmp_path.read_bytes())
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), replacing_folder(tmp_path / "f") as temporary:
        (temporary / "a").write_bytes(temporary.read_bytes())
    assert list(tmp_path.iterdir()) == []
    with replacing_folder(tmp_path / "f") as temporary:
        (temporary / "a").write_text("1")
        assert not (tmp_path / "f").exists()
    assert (tmp_path / "f" / "a").read_text() == "1"


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    (tmp_path / "a.csv").mkdir()
    for file in (tmp_path / "run" / ".lock", tmp_path / "a.csv"):
        raised = pytest.raises(UserError, match="is a folder")
        with raised as caught, locked(tmp_path / "run"), replacing(tmp_path / "a.csv"):
            pass
        assert (caught.value.where, len([*tmp_path.glob("*")])) == (str(file), 2)
        file.rmdir()


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / f"{TEMPORARY_PREFIX}1").write_text("")
    (tmp_path / f"{TEMPORARY_PREFIX}2").mkdir()
    (tmp_path / ".mine").write_text("")
    remove_temporaries(tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == [".mine"]


def test_a_full_disk_is_recognized_however_it_is_reported() -> None:
    assert is_disk_full(OSError(errno.ENOSPC, "x"))
    assert is_disk_full(OSError("[errno 28] Error writing: No space left on device"))
    error = ValueError("cannot be saved")
    error.__cause__ = OSError(errno.EDQUOT, "x")
    assert is_disk_full(error)
    assert not is_disk_full(OSError(errno.EACCES, "no"))


@pytest.mark.parametrize("writer", [replacing, replacing_folder, locked])
def test_what_does_not_fit_is_named_with_what_to_do(
    writer: Callable[[Path], AbstractContextManager[object]], tmp_path: Path
) -> None:
    path = tmp_path / "new"
    message = f"^{path}: the disk is full.*\n  free space, then repeat the command"
    with pytest.raises(UserError, match=message), writer(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_no_error_has_the_name_of_a_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "lost" / "a.txt"):
        pass
    assert caught.value.filename == str(tmp_path / "lost" / "a.txt")
