"""Runs of scenarios that are given as text."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.invoking import invoke


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a scenario text in a folder of its own; where it is refused, no run folder may be left."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | bytes, *args: str | Path) -> Result:
        path = Path("s.yaml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return invoke("run", path, *args)

    return run
