import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from fedsim.errors import UserError
from fedsim.files.locks import is_owned, locked

HOLDER = """
import sys, time
from pathlib import Path
from fedsim.files.locks import is_owned, locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_process_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    with pytest.raises(UserError, match=rf"process {holder.pid} on '.+', since \d{{4}}-"):
        locked(tmp_path).__enter__()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()} "):
        locked(tmp_path).__enter__()
    with locked(tmp_path):
        pass
    assert not (tmp_path / ".owner.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_a_killed_process_whose_parent_has_not_waited_for_it_owns_nothing(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    assert is_owned(tmp_path)
    holder.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    os.kill(holder.pid, 0)  # Its id is still in use.
    assert not is_owned(tmp_path)
    path = tmp_path / ".owner.json"
    for pid in (os.getpid(), 1):  # As if it were used again.
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": pid}))
        assert not is_owned(tmp_path)
    path.write_text('{"pid": "x", "host": ["z"]}')
    assert not is_owned(tmp_path)


@pytest.mark.parametrize("name", [".lock", ".owner.json"])
def test_a_link_prepared_under_the_name_of_the_lock_is_not_followed(
    tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    message = re.escape(f"{folder}/.lock: ") + ".*\n  remove the link"
    is_refused = pytest.raises(UserError, match=message)
    with is_refused if name == ".lock" else contextlib.nullcontext(), locked(folder):
        pass
    assert victim.read_text() == "precious"


def test_without_locks_on_the_file_system_the_work_goes_on_after_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileLock) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "_acquire", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with locked(tmp_path):
                pass
    assert [str(warning.message) for warning in caught if "locks" in str(warning.message)] == [
        f"{tmp_path}: this file system does not support locks; do not start a second fedsim in this folder"
    ]
