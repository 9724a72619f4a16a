"""Files, folders and archives: what is unpacked, how much of it, and what is damaged."""

import gzip
import lzma
import random
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from fedsim.errors import UserError
from fedsim.files.sources import Sources
from fedsim.traces.importers import recognize
from tests.traces.helpers import refused

CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK not really")
    assert "not a zip file" in refused("pensieve", path)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0 1\n1 2\n" * 100)[:-12])
    assert "is not a complete .gz file" in refused("pensieve", path)
    path = tmp_path / "a.txt.gz"
    path.write_text("0 1\n1 2\n")
    assert "if it is something else, name it without .gz" in refused("pensieve", path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_every_stream_of_a_compressed_file_is_read(tmp_path: Path, ending: str) -> None:
    """Those after padding too; text and damaged streams after the first are refused."""
    path, packed = tmp_path / f"a.txt.{ending}", []
    for text in (b"0 1\n1 2\n", b"2 3\n" * 9):
        with pa.output_stream(path, compression=None if ending == "xz" else CODECS[ending]) as file:
            file.write(lzma.compress(text) if ending == "xz" else text)
        packed.append(path.read_bytes())
    first, second = packed
    between = [b"", b"\0" * 8] if ending in ("xz", "gz") else [b""]
    for padding in between:
        path.write_bytes(first + padding + second + padding)
        [source] = Sources([path])
        assert source.data == b"0 1\n1 2\n" + b"2 3\n" * 9
    for damaged in (first + b"9 9\n", first + b"?" + second[1:], first + second[:-6], b"\0" * 64):
        path.write_bytes(damaged)
        assert f"is not a complete .{ending} file" in refused("pensieve", path)


def test_an_archive_with_a_member_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "0 1\n1 2\n")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.txt", "0 1\n1 3\n")
    assert "a.zip: contains 'a.txt' twice" in refused("pensieve", tmp_path / "a.zip")


def test_rows_do_not_count_twice(tmp_path: Path) -> None:
    """Of a file that is given again, of a link to it, and of its compressed copy; litter of Windows does not count."""
    folder = tmp_path / "f"
    folder.mkdir()
    path = folder / "a.txt"
    path.write_text("0 1\n1 2\n")
    (folder / "Thumbs.db").write_bytes(b"\xd0\xcf")
    assert len(list(Sources([folder]))) == 1
    for again in (path, folder / ".." / "f" / "a.txt", folder):
        with pytest.raises(UserError, match=f"is given twice, also as {path}"):
            list(Sources([path, again]))
    (folder / "b.txt").symlink_to("a.txt")
    assert "b.txt: is given twice" in refused("pensieve", folder)
    (folder / "b.txt").unlink()
    (folder / "b.txt").symlink_to("not_fetched.txt")
    assert "b.txt: cannot be read: No such file" in refused("pensieve", folder)
    (folder / "b.txt").unlink()
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"0 1\n1 2\n"))
    assert "a.txt.gz: is given twice" in refused("pensieve", folder)


def test_archives_in_one_file_are_not_taken_for_the_last(tmp_path: Path) -> None:
    """Joined, or one that contains another and lost its end."""
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as inner:
        inner.writestr("b.txt", "0 1\n1 2\n")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "0 1\n1 3\n")
        archive.write(tmp_path / "b.zip", "b.zip")
    one, two = ((tmp_path / name).read_bytes() for name in ("a.zip", "b.zip"))
    for content in (one[:-30], one + two):
        (tmp_path / "c.zip").write_bytes(content)
        assert "c.zip: does not begin with the files" in refused("pensieve", tmp_path / "c.zip")


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 9)])  # A password, Windows' Deflate64.
def test_an_archive_that_is_not_unpacked_is_not_called_damaged(
    tmp_path: Path, at: int, value: int
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "0 1\n1 2\n")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[at] = content[content.find(b"PK\x01\x02") + at + 2] = value
    (tmp_path / "a.zip").write_bytes(content)
    assert "a.zip: cannot be unpacked" in refused("pensieve", tmp_path / "a.zip")


def test_endings_in_capitals_are_known_and_other_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1\n1 2\n")
    (tmp_path / "a.TXT.GZ").write_bytes(gzip.compress(b"0 1\n1 2\n"))
    with zipfile.ZipFile(tmp_path / "a.ZIP", "w") as archive:
        archive.write(tmp_path / "a.txt", "a.txt")
    for name in ("a.TXT.GZ", "a.ZIP"):
        assert [file.data for file in Sources([tmp_path / name])] == [b"0 1\n1 2\n"]
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "a.txt", "a.txt")
    assert "unpack archives" in refused("table", tmp_path / "a.tar.gz")


def bomb(path: Path, megabytes: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(megabytes):
            file.write(b"0" * 1_000_000)
    return path


def test_compressed_files_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path / "w.gz", 3)
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "2MB")
    assert "unpacks to more than" in refused("pensieve", path)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.txt", b"0" * 3_000_000)
    assert "a.zip!w.txt: unpacks to" in refused("pensieve", tmp_path / "a.zip")
    (tmp_path / "f").mkdir()
    bomb(tmp_path / "f" / "x.gz", 1)
    bomb(tmp_path / "f" / "y.gz", 1)
    assert [len(file.data) for file in Sources([tmp_path / "f"])] == [10**6] * 2
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "1.5MB")
    with pytest.raises(UserError, match="unpacks to more than"):
        list(Sources([tmp_path / "f"]))
    with pytest.raises(UserError, match="unpacks to more than"):
        list(Sources([Path("/dev/zero")]))
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "4MB")
    assert "fields" in refused("pensieve", path)
    # Members of one file; 200 times its size is the default.
    (tmp_path / "w.gz").write_bytes(gzip.compress(b"0" * 50_000_000, 1) * 6)
    monkeypatch.delenv("FEDSIM_MAX_UNPACKED")
    with pytest.raises(UserError, match=r"more than 0\.25 GiB"):
        next(iter(Sources([tmp_path / "w.gz"])))


def test_a_format_is_recognized_by_the_head_of_a_file_however_long_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "w.txt.gz"
    # Incompressible, and cut off: reading all of it would fail.
    path.write_bytes(gzip.compress(b"0 1\n1 2\n" + random.Random(0).randbytes(300_000))[:-12])
    (file,) = Sources([path], head=4096)
    assert (len(file.data), file.data[:8]) == (4096, b"0 1\n1 2\n")
    recognize([path])
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.write(path, "w.gz")
    assert [len(file.data) for file in Sources([tmp_path / "w.zip"], head=10)] == [10]
