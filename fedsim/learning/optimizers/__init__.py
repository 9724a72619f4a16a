"""Optimizers of local steps. One file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.learning.optimizers.base import Optimizer as Optimizer
from fedsim.learning.optimizers.base import OptimizerParams as OptimizerParams


def registry() -> Mapping[str, type[Optimizer]]:
    """The optimizers that ship with fedsim, by name."""
    return discover("fedsim.learning.optimizers", Optimizer)
