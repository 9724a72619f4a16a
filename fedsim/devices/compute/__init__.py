"""Compute models: how long a local step takes. One file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.devices.compute.base import ComputeModel


def registry() -> Mapping[str, type[ComputeModel]]:
    """The compute models that ship with fedsim, by name."""
    return discover("fedsim.devices.compute", ComputeModel)
