"""Fixtures of the tests of composition."""

from pathlib import Path

import pytest

from tests.composition.adapters import USERS


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path
