"""Experiment trackers, one file each; :mod:`fedsim.tracking.base` is the interface.

Invariant: a client is imported only if a scenario names it, and a tracker never changes a result.
"""

from fedsim.tracking.base import Moment as Moment
from fedsim.tracking.base import TrackedRun as TrackedRun
from fedsim.tracking.base import Tracker as Tracker
