"""The models, one file each (the networks of the reproduced papers together in ``paper_cnns``)."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.tasks.model import ModelComponent


def registry() -> Mapping[str, type[ModelComponent]]:
    """The models that ship with fedsim, by name."""
    return discover("fedsim.tasks.models", ModelComponent)
