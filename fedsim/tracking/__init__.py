"""Experiment trackers, one file each; :mod:`fedsim.tracking.base` is the interface.

Invariant: the client library of a tracker is imported only if a scenario names it; a tracker never changes a result.
"""

from fedsim.tracking.base import Moment as Moment
from fedsim.tracking.base import TrackedRun as TrackedRun
from fedsim.tracking.base import Tracker as Tracker
