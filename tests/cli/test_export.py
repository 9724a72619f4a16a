"""``fedsim export`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from fedsim.analysis.export import FORMATS
from fedsim.cli.export import command
from tests.runs.synthetic_runs import build_run


def test_command(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=25, hours=24, asynchronous=True, seed=3)
    out = tmp_path / "deep" / "timeline.json"
    result = CliRunner().invoke(command, [str(run.path), "--format", "perfetto", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == str(out)
    assert json.loads(out.read_text())["otherData"]["run"] == "night-shift"
    option = next(param for param in command.params if param.name == "format_")
    assert list(option.type.choices) == list(FORMATS)
