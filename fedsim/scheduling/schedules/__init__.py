"""Schedules: when to dispatch, wait, cut and aggregate. One file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.scheduling.base import Schedule


def registry() -> Mapping[str, type[Schedule]]:
    """The schedules that ship with fedsim, by name."""
    return discover("fedsim.scheduling.schedules", Schedule)
