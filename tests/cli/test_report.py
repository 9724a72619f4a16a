"""``fedsim report`` on the command line."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from fedsim.cli.report import command
from tests.analysis.documents import columns, embedded
from tests.runs.synthetic_runs import build_run


def test_killed_run_gets_a_page_that_says_so(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=10, hours=2, finish=False)
    result = CliRunner().invoke(
        command, [str(tmp_path / "run"), "-o", str(tmp_path / "pages" / "a.html")]
    )
    assert result.exit_code == 0, result.output
    assert result.output.strip() == str(tmp_path / "pages" / "a.html")
    page = (tmp_path / "pages" / "a.html").read_text()
    assert "This run was interrupted." in page
    assert columns(embedded(page), "time").keys() == {"part", "seconds", "work_share"}
