"""Selections: which clients to dispatch. One file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.scheduling.base import Selection


def registry() -> Mapping[str, type[Selection]]:
    """The selections that ship with fedsim, by name."""
    return discover("fedsim.scheduling.selections", Selection)
