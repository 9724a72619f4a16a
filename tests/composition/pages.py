"""Runs whose pages nobody reads: drawing one takes as long as a small run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def empty_pages() -> Iterator[None]:
    """Runs write an empty report page inside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsim.analysis.report.render", lambda run: "")
        yield
