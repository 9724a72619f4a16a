"""Experiment trackers, one file each; :mod:`fedsim.tracking.base` is the interface.

Invariant: a client is imported only if a scenario names it, and a tracker never changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.tracking.base import Moment as Moment
from fedsim.tracking.base import TrackedRun as TrackedRun
from fedsim.tracking.base import Tracker as Tracker


def registry() -> Mapping[str, type[Tracker]]:
    """The trackers that ship with fedsim, by name."""
    return discover("fedsim.tracking", Tracker)
