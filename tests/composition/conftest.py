"""Fixtures of the tests of composition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.composition.adapters import USERS
from tests.composition.pages import empty_pages


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pageless() -> Iterator[None]:
    with empty_pages():
        yield
