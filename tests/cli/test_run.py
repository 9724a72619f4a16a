"""``fedsim run``, ``resume``, ``report`` and ``export``."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import fedsim
from fedsim.analysis.export import FORMATS
from fedsim.cli import command_line
from fedsim.cli.run import export
from fedsim.runs import Run, Status, writer
from tests.cli.invoking import PARABOLAS, RunText, assert_refused, invoke
from tests.composition.killing import started
from tests.composition.worlds import digits
from tests.runs.synthetic_runs import build_run
from tests.signals import default_signals


def test_an_output_folder_that_exists_is_not_overwritten(run: RunText, tmp_path: Path) -> None:
    assert run(PARABOLAS, "-o", "out").exit_code == 0
    before = (tmp_path / "out" / "metrics.parquet").read_bytes()
    assert_refused(run(PARABOLAS, "-o", "out", "-s", "seed=1"), "out: ", "overwrite")
    assert (tmp_path / "out" / "metrics.parquet").read_bytes() == before
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("x")
    assert_refused(run(PARABOLAS, "-o", "thesis"), "thesis: ")
    assert_refused(run(PARABOLAS, "-o", "thesis", "--overwrite"), "thesis: ", "not a run folder")
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "x"


def test_a_run_is_exported(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=25, hours=24, asynchronous=True, seed=3)
    out = tmp_path / "deep" / "timeline.json"
    result = invoke("export", run.path, "--format", "perfetto", "-o", out)
    assert result.stdout.strip() == str(out)
    assert json.loads(out.read_text())["otherData"]["run"] == "night-shift"
    option = next(param for param in export.params if param.name == "format_")
    assert list(option.type.choices) == list(FORMATS)


WORLD = digits(stop={"rounds": 150})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that no signal interrupts."""
    return fedsim.run(WORLD, tmp_path_factory.mktemp("whole") / "run")


def _command(errors: Path, *arguments: str) -> None:
    """The command line of a new process, whose messages become a file."""
    default_signals()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    # Rows reach the disk immediately, so that the test sees that the run is in progress.
    writer.FLUSH_INTERVAL_S = 0.0
    sys.argv[1:] = arguments
    sys.exit(command_line())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_a_run_that_resumes_to_the_same_bits(
    tmp_path: Path, number: int, whole: Run
) -> None:
    """And a checkpoint; the last line is the command that continues. Wall times are summed."""
    scenario, path = tmp_path / "scenario.yaml", tmp_path / "run"
    YAML(typ="safe").dump(WORLD, scenario)
    errors = tmp_path / "errors"
    process = started(_command, errors, "run", str(scenario), "-o", str(path))
    stream = path / "metrics.arrows"
    while not stream.exists() or stream.stat().st_size < 1500:
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 128 + number
    assert f"continue with: fedsim resume {path}" in errors.read_text().splitlines()
    run = fedsim.load(path)
    assert run.status is Status.INTERRUPTED
    assert any((path / "checkpoint").glob("[0-9]*"))
    before_s = run.info["wall_s"]
    resuming = invoke("resume", path)
    assert resuming.exit_code == 0, resuming.output
    assert re.search(
        r"resuming from the checkpoint at version \d+, simulated [\d.]+ .*% of the run",
        resuming.output,
    )
    assert "resumed once" in resuming.output
    again = invoke("resume", path)
    assert (again.exit_code, "the run is complete" in again.output) == (0, True)
    refused = invoke("resume", path, "-s", "seed=3")
    assert refused.exit_code == 2
    assert "seed affects the result" in refused.output
    resumed = fedsim.load(path)
    assert resumed.info["wall_s"] > before_s > 0
    for name in ("metrics.parquet", "model.safetensors"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()
