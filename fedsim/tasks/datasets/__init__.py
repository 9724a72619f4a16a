"""The datasets, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.tasks.dataset import DatasetComponent


def registry() -> Mapping[str, type[DatasetComponent]]:
    """The datasets that ship with fedsim, by name."""
    return discover("fedsim.tasks.datasets", DatasetComponent)
