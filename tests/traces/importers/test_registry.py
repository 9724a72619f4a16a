"""The formats that ship with fedsim, and importers of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from fedsim.cli import cli
from fedsim.traces.exporters import registry as exporters
from fedsim.traces.importers import registry as importers


def test_every_format_says_what_it_is() -> None:
    assert list(importers()) == [
        "ai_benchmark",
        "avt",
        "csv",
        "fedscale",
        "flash",
        "fta",
        "mahimahi",
        "mobiperf",
        "nyu_mets",
        "pensieve",
        "rtt_matrix",
        "ucc5g",
    ]
    assert list(exporters()) == ["avt", "fedscale", "fta", "mahimahi", "pensieve"]
    for component in [*importers().values(), *exporters().values()]:
        assert component.description
        for field, info in component.Params.model_fields.items():
            assert info.description, f"{component.name}: {field}"


def test_command_line_prints_what_was_dropped(tmp_path: Path) -> None:
    source = tmp_path / "b.json"
    source.write_text(json.dumps({"1": {"active": [1, 5], "inactive": [2, 5], "finish_time": 60}}))
    runner = CliRunner()
    done = runner.invoke(
        cli, ["traces", "import", "fedscale", str(source), "-o", str(tmp_path / "bundle")]
    )
    assert done.exit_code == 0, done.output
    assert "zero length" in done.output
    done = runner.invoke(
        cli, ["traces", "export", "avt", str(tmp_path / "bundle"), "-o", str(tmp_path / "a.avt")]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.avt").read_text() == "1\t1\t 1 2\n"
