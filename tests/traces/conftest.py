"""Real traces, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Folder of the real traces."""
    root = os.environ.get("FEDSIM_DATA")
    if not root:
        pytest.skip("FEDSIM_DATA does not name a folder with the real traces")
    folder = Path(root) / "traces"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    return folder
