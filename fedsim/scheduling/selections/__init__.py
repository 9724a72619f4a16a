"""Selections: which clients to dispatch. One file each."""

from __future__ import annotations

from fedsim.components import discover
from fedsim.scheduling.base import Selection


def registry() -> dict[str, type[Selection]]:
    """The selections that ship with fedsim, by name."""
    return discover("fedsim.scheduling.selections", Selection)
