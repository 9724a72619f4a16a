"""Checksums: of files and texts, and of documents that carry their own."""

import json
import os
from pathlib import Path

import pytest

from fedsim.files.checksums import data_sha256, file_sha256, is_unchanged, stamped, text_sha256

OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""The SHA-256 of "abc", as in the standard (FIPS 180-2, appendix B.1)."""


def test_a_file_and_a_text_have_the_checksum_of_the_standard(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_sha256(tmp_path / "abc") == text_sha256("abc") == OF_ABC


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_data_have_the_checksum_of_their_files_or_of_their_manifest(tmp_path: Path) -> None:
    subfolder = tmp_path / "part"
    subfolder.mkdir()
    (subfolder / "b.json").write_text("b")
    (tmp_path / "a.json").write_text("a")
    plain = data_sha256(tmp_path)
    assert plain == text_sha256(f"{text_sha256('a')} a.json\n{text_sha256('b')} part/b.json\n")
    assert data_sha256(subfolder / "b.json") == text_sha256("b")
    (subfolder / "b.json").write_text("bb")
    assert data_sha256(tmp_path) != plain
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"")  # A name that is not UTF-8.
    assert len(data_sha256(tmp_path)) == len(plain)
    (tmp_path / "manifest.json").write_text("{}")
    assert data_sha256(tmp_path) == text_sha256("{}")


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            file_sha256(tmp_path / name)


def test_a_document_knows_whether_it_has_changed() -> None:
    written = stamped({"b": (1, 2.5), "a": {"text": "ä"}})
    read = json.loads(json.dumps(written))
    assert is_unchanged(read)
    assert is_unchanged(dict(reversed(read.items())))
    for change in ({"b": [1, 2]}, {"c": None}, {"sha256": "0"}):
        assert not is_unchanged({**read, **change})
    assert not is_unchanged({"b": [1, 2.5]})
