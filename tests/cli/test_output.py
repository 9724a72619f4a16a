"""Where the output goes, and how a command ends from outside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "fedsim"]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    listing = subprocess.Popen(
        [*COMMAND, "scenario", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.close()
    assert listing.stderr.read() == b""
    assert listing.wait() == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_to_a_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*COMMAND, "scenario", "list"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert result.returncode == 2
    assert result.stderr.decode() == "error: cannot write: No space left on device\n"
