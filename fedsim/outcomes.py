"""How a dispatch can end; shared by the time plane, which decides it, and the run folder, which records it."""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    """The one outcome of a dispatch; files and pages show :attr:`label`."""

    AGGREGATED = 0
    """Its update entered a server update."""
    LATE = 1
    """Its update arrived, but after the server had stopped waiting for it."""
    DROPPED = 2
    """The device went away (or failed) before the update had arrived."""
    CUT = 3
    """The server called the work off before the update had arrived."""
    DISCARDED = 4
    """Its update arrived in time and the server did not want it (over-selection, too stale)."""
    UNFINISHED = 5
    """The run ended first."""

    @property
    def label(self) -> str:
        """The word written to files: ``aggregated``, ``late``, ..."""
        return self.name.lower()


OUTCOME_LABELS = tuple(outcome.label for outcome in Outcome)
