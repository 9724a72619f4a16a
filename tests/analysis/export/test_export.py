"""All exports: killed and timing-only runs, files that exist, the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.analysis.export import FORMATS, export
from fedsim.errors import UserError
from fedsim.runs import Run
from tests.analysis.export.reading import check_format, read_trace
from tests.runs.synthetic_runs import build_run


@pytest.mark.parametrize("name", FORMATS)
def test_runs_that_were_killed_or_only_timed_are_exported_too(name: str, tmp_path: Path) -> None:
    killed = build_run(tmp_path / "killed", hours=3, finish=False)
    timed = build_run(tmp_path / "timed", hours=3, learning=False)
    for run in (killed, timed):
        path = export(run, name)
        assert path.exists()
        if name == "perfetto":
            assert check_format(read_trace(path))


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="already exists"):
        export(run, "csv", tmp_path / "taken")
    with pytest.raises(UserError, match="there is no format 'xlsx'"):
        export(run, "xlsx", tmp_path / "x")
