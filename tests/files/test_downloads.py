"""Downloads: addresses tried in order, hashes, and files that are already there."""

import contextlib
import socket
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from rich.progress import Progress

from fedsim.errors import UserError
from fedsim.files import downloads
from fedsim.files.downloads import Remote, _bar, cache_folder, retrieve

DIGEST = f"sha256:{sha256(b'12345').hexdigest()}"


def _retrieve(folder: Path, *urls: str) -> Path:
    return retrieve(Remote(urls, DIGEST), folder, where="toy", hint="carry it")


def test_a_download_is_checked_and_kept(server: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = server
    (folder / "numbers.bin").write_bytes(b"12345")
    path = _retrieve(tmp_path / "kept", f"{address}absent.bin", f"{address}numbers.bin")
    assert path.read_bytes() == b"12345", "the second address is tried where the first has nothing"
    (folder / "numbers.bin").unlink()
    assert _retrieve(tmp_path / "kept", f"{address}numbers.bin") == path


def test_a_file_put_there_by_hand_is_checked(server: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = server
    (tmp_path / "numbers.bin").write_bytes(b"54321")
    with pytest.raises(UserError, match=r"toy: cannot download .*numbers\.bin") as caught:
        _retrieve(tmp_path, f"{address}numbers.bin")
    assert caught.value.hint == "carry it"
    (tmp_path / "numbers.bin").write_bytes(b"12345")
    assert _retrieve(tmp_path, f"{address}numbers.bin") == tmp_path / "numbers.bin"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a full queue refuses connections")
def test_a_connection_that_nobody_accepts_is_given_up_before_a_slow_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As behind a firewall that drops packets: no more connections fit into the queue of the server."""
    assert downloads._MOST_S == (10, 30)
    monkeypatch.setattr(downloads, "_MOST_S", (0.2, 30))
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        address = f"http://127.0.0.1:{server.getsockname()[1]}/numbers.bin"
        with pytest.raises(UserError, match="Max retries exceeded"):
            _retrieve(tmp_path, address)


def test_a_download_without_an_end_is_ended() -> None:
    bar = _bar(Progress(), "endless.bin")
    bar.update(1 << 30)
    with pytest.raises(ValueError, match="does not end"):
        bar.update(1)


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("traces", "flash") == tmp_path / "fedsim" / "traces" / "flash"
