"""Runs whose report page nobody reads: drawing one takes half of a small run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedsim.analysis.run import Run


@contextmanager
def empty_reports() -> Iterator[pytest.MonkeyPatch]:
    """Runs in this process leave an empty report page inside."""

    def leave_empty(run: Run, *_: object, **__: object) -> Path:
        run.folder.report.touch()
        return run.folder.report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsim.analysis.run.Run.report", leave_empty)
        yield patch
