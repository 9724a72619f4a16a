"""Parts in users' files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.errors import UserError
from tests.tasks.users import own_task


def test_a_user_file_that_is_missing_or_broken_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        own_task(tmp_path, "Net")
    (tmp_path / "own.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError"):
        own_task(tmp_path, "Net")
