"""Files and folders that appear whole or not at all, beside whatever else lies in their folder."""

from __future__ import annotations

import os
import stat

import pytest

from fedsim.durable import new_file, new_folder, write_file


def test_a_file_replaces_what_was_there_with_ordinary_permissions(tmp_path):
    path = tmp_path / "a.txt"
    write_file(path, b"one")
    write_file(path, b"two")
    assert path.read_bytes() == b"two"
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "plain"]


def fail_halfway(path):
    with new_file(path) as file:
        file.write(b"half of")
        raise RuntimeError


def fail_in_folder(path):
    with new_folder(path) as folder:
        (folder / "x").touch()
        raise RuntimeError


def test_a_failure_leaves_the_old_content_and_no_trace(tmp_path):
    path = tmp_path / "a.txt"
    write_file(path, b"one")
    with pytest.raises(RuntimeError):
        fail_halfway(path)
    with pytest.raises(RuntimeError):
        fail_in_folder(tmp_path / "folder")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "a.txt").symlink_to(victim)
    write_file(tmp_path / "a.txt", b"new")
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "a.txt").is_symlink()


def test_temporary_names_cannot_be_predicted_and_content_is_synced_before_it_is_renamed(
    tmp_path, monkeypatch
):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("sync"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(a.name), replace(a, b)))
    for _ in range(2):
        write_file(tmp_path / "a.txt", b"x")
    first, second = (name for name in calls if name != "sync")
    assert first != second
    assert calls == ["sync", first, "sync", "sync", second, "sync"]


def test_a_folder_appears_with_all_its_files(tmp_path):
    with new_folder(tmp_path / "new") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("x")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "inner" / "x").read_text() == "x"
    assert os.listdir(tmp_path) == ["new"]
