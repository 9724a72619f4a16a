"""``fedsim resume`` after a signal."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

import fedsim
from fedsim.cli import cli
from fedsim.runs import Run, Status
from tests.composition.worlds import digits
from tests.signals import default_signals

# Rows reach the disk immediately, so that the test sees that the run is in progress.
FLUSHING = """
import sys
import fedsim.runs.writer
from fedsim.cli import main
fedsim.runs.writer.FLUSH_INTERVAL_S = 0.0
main()
"""


WORLD = digits(stop={"rounds": 150})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that no signal interrupts."""
    return fedsim.run(WORLD, tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there are no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_a_run_that_resumes_to_the_same_bits(
    tmp_path: Path, number: int, whole: Run
) -> None:
    """And a checkpoint; the last line is the command that continues. Wall times are summed."""
    scenario, path = tmp_path / "scenario.yaml", tmp_path / "run"
    YAML(typ="safe").dump(WORLD, scenario)
    process = subprocess.Popen(
        [sys.executable, "-c", FLUSHING, "run", str(scenario), "-o", str(path)],
        stderr=subprocess.PIPE,
        preexec_fn=default_signals,
    )
    stream = path / "metrics.arrows"
    while not stream.exists() or stream.stat().st_size < 1500:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.stderr is not None
    lines = process.stderr.read().decode().splitlines()
    assert process.wait() == 128 + number
    assert f"continue with: fedsim resume {path}" in lines
    run = fedsim.load(path)
    assert run.status is Status.INTERRUPTED
    assert any((path / "checkpoint").glob("[0-9]*"))
    before_s = run.info["wall_s"]
    resuming = CliRunner().invoke(cli, ["resume", str(path)])
    assert resuming.exit_code == 0, resuming.output
    assert re.search(
        r"resuming from the checkpoint at version \d+, simulated [\d.]+ .*% of the run",
        resuming.output,
    )
    assert "resumed once" in resuming.output
    again = CliRunner().invoke(cli, ["resume", str(path)])
    assert (again.exit_code, "the run is complete" in again.output) == (0, True)
    refused = CliRunner().invoke(cli, ["resume", str(path), "-s", "seed=3"])
    assert refused.exit_code == 2
    assert "seed affects the result" in refused.output
    resumed = fedsim.load(path)
    assert resumed.info["wall_s"] > before_s > 0
    assert (resumed.path / "metrics.parquet").read_bytes() == (
        whole.path / "metrics.parquet"
    ).read_bytes()
    assert (resumed.path / "model.safetensors").read_bytes() == (
        whole.path / "model.safetensors"
    ).read_bytes()
