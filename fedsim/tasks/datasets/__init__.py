"""The datasets, one file each."""

from __future__ import annotations

from fedsim.components import discover
from fedsim.tasks.dataset import DatasetComponent


def registry() -> dict[str, type[DatasetComponent]]:
    """The datasets that ship with fedsim, by name."""
    return discover("fedsim.tasks.datasets", DatasetComponent)
