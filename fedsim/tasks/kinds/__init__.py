"""The kinds of task, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.tasks.base import Task


def registry() -> Mapping[str, type[Task]]:
    """The kinds of task that ship with fedsim, by name."""
    return discover("fedsim.tasks.kinds", Task)
