"""Tables, downloads and archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.files.downloads import Remote
from fedsim.tasks.reading.files import Archive, download, locate, read_table
from tests.tasks.files import digest


def test_a_table_is_read_from_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a byte order mark and the line ends of Windows; what is checked is what is used."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xef\xbb\xbfname,value\r\na,1\r\n\r\nb,2\r\n")
    read_bytes = Path.read_bytes

    def read_and_remove(file: Path) -> bytes:
        content = read_bytes(file)
        file.unlink()
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_remove)
    assert read_table(path, "").to_dict("list") == {"name": ["a", "b"], "value": [1, 2]}


def test_a_download_with_the_wrong_hash_is_refused(server: tuple[str, Path]) -> None:
    address, folder = server
    (folder / "numbers.bin").write_bytes(b"54321")
    with pytest.raises(UserError, match=r"cannot download .*numbers\.bin") as caught:
        download("toy", Remote((f"{address}numbers.bin",), digest(b"12345")))
    assert "root:" in str(caught.value)
    assert not [path for path in folder.parent.glob("cache/**/*") if path.is_file()]


def test_no_network_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(("http://127.0.0.1:9/file.gz",), digest(b""))
    with pytest.raises(
        UserError, match=r"cannot download http://127\.0\.0\.1:9/file\.gz"
    ) as caught:
        download("mnist", remote)
    assert "$FEDSIM_DATA/datasets/mnist" in str(caught.value)


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
        archive.writestr("inner/unused", b"")
    return stream.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for member in (tarfile.TarInfo(name), tarfile.TarInfo("inner/unused")):
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize(("packed", "file"), [(zipped, "all.zip"), (tarred, "all.tar.gz")])
def test_only_the_files_needed_are_taken_out_of_an_archive(
    server: tuple[str, Path], packed: Callable[[str, bytes], bytes], file: str
) -> None:
    address, folder = server
    content = packed("inner/numbers.gz", b"12345")
    (folder / file).write_bytes(content)
    archive = Archive((f"{address}{file}",), digest(content), inner="inner", ending=".gz")
    (path,) = locate("toy", ["numbers"], None, None, archive)
    assert path.read_bytes() == b"12345"
    assert sorted(each.name for each in path.parent.iterdir()) == sorted([file, "numbers.gz"])
    (folder / file).unlink()
    assert locate("toy", ["numbers"], None, None, archive) == [path]
    with pytest.raises(UserError, match=r"damaged.*letters"):
        locate("toy", ["letters"], None, None, archive)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_file_is_refused(
    server: tuple[str, Path], tmp_path: Path, kind: bytes
) -> None:
    """In particular a link to a file outside the archive."""
    address, folder = server
    (tmp_path / "secret").write_bytes(b"12345")
    member = tarfile.TarInfo("inner/numbers.gz")
    member.type, member.linkname = kind, str(tmp_path / "secret")
    with tarfile.open(folder / "all.tar.gz", mode="w:gz") as tar:
        tar.addfile(member)
    content = (folder / "all.tar.gz").read_bytes()
    archive = Archive((f"{address}all.tar.gz",), digest(content), inner="inner", ending=".gz")
    with pytest.raises(UserError, match=r"damaged.*(secret|numbers)"):
        locate("toy", ["numbers"], None, None, archive)


def test_files_may_lie_in_the_folder_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "numbers.xz").write_bytes(b"")
    archive = Archive((), digest(b""), inner="inner")
    assert locate("toy", ["numbers"], tmp_path, None, archive) == [tmp_path / "inner/numbers.xz"]
    with pytest.raises(UserError, match=r"missing letters in .*inner"):
        locate("toy", ["letters"], tmp_path, None, archive)
