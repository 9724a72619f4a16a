"""The models, one file each (the networks of the reproduced papers together in ``paper_cnns``)."""

from __future__ import annotations

from fedsim.components import discover
from fedsim.tasks.model import ModelComponent


def registry() -> dict[str, type[ModelComponent]]:
    """The models that ship with fedsim, by name."""
    return discover("fedsim.tasks.models", ModelComponent)
