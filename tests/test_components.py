"""Parts in users' files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.components import load_user_component
from fedsim.errors import UserError
from tests.tasks.users import own_task


def test_a_user_file_that_is_missing_or_broken_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        own_task(tmp_path, "Net")
    (tmp_path / "own.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError"):
        own_task(tmp_path, "Net")


def test_a_name_that_a_file_lacks_suggests_what_it_defines(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from fedsim.metrics import MetricDefinition\n"
        "from fedsim.units import parse_rate_bps\n"
        "def confident_errors(outputs, labels): return 0\n"
        "def _helper(): return 0\n"
    )
    hint = r"did you mean 'confident_errors'\? it defines: confident_errors$"
    with pytest.raises(UserError, match=hint):
        load_user_component("own.py:confident", object, tmp_path, lambda function: object)
