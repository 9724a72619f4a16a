"""Downloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.files import Remote, download
from tests.tasks.files import digest


def test_a_download_is_checked_and_kept(server: tuple[str, Path]) -> None:
    address, folder = server
    (folder / "numbers.bin").write_bytes(b"12345")
    remote = Remote((f"{address}absent.bin", f"{address}numbers.bin"), digest(b"12345"))
    path = download("toy", remote)
    assert path.read_bytes() == b"12345", "the second address is tried where the first has nothing"
    (folder / "numbers.bin").unlink()
    assert download("toy", Remote((f"{address}numbers.bin",), digest(b"12345"))) == path


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
