"""The ways in which a dispatch can end; the time plane decides them and the run folder records them."""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    """The outcome of a dispatch; each has exactly one. Files and pages show its :attr:`label`."""

    AGGREGATED = 0
    """The update was aggregated into a model version."""
    LATE = 1
    """The update arrived after the server had stopped waiting for it."""
    DROPPED = 2
    """The device left, failed or declined before the update had arrived."""
    CUT = 3
    """The server canceled the dispatch before the update had arrived."""
    DISCARDED = 4
    """The update arrived in time, but the server did not use it (a round with too few updates, too stale, an
    error of a Flower app)."""
    UNFINISHED = 5
    """The run ended before the dispatch did, or before its update was used."""

    @property
    def label(self) -> str:
        """The word written to files: ``aggregated``, ``late``, ..."""
        return self.name.lower()


class Ending(IntEnum):
    """How the life of a dispatch ends on its device. From ``OFFLINE`` on, it is why the dispatch is dropped."""

    ARRIVED = 0
    """The update arrived."""
    STOPPED = 1
    """The server, or the end of the run, stopped it."""
    OFFLINE = 2
    """The device went offline."""
    CRASH = 3
    """The device crashed during its local steps."""
    LOST_UPLOAD = 4
    """Every attempt to upload the update was lost."""
    BATTERY = 5
    """The battery ran empty."""
    DECLINED = 6
    """The device declined, because it could not finish in time."""

    @property
    def label(self) -> str:
        """The word written to files: ``offline``, ``lost upload``, ..."""
        return self.name.lower().replace("_", " ")


# Looking up a member of an enumeration costs several times as much as passing it on.
ARRIVED, AGGREGATED = Ending.ARRIVED, Outcome.AGGREGATED

OUTCOME_LABELS = tuple(outcome.label for outcome in Outcome)

CAUSE_LABELS = tuple(ending.label for ending in Ending if ending >= Ending.OFFLINE)
"""Why dispatches are dropped, in the order of :class:`Ending` from ``OFFLINE`` on."""

LOST_LABELS = tuple(
    outcome.label for outcome in Outcome if outcome not in (Outcome.AGGREGATED, Outcome.UNFINISHED)
)
"""Outcomes that count as lost work; unfinished work does not, because it only lacked time."""
