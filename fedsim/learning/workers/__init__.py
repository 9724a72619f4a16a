"""Workers that train the groups of a wave: threads, several devices, or processes of this machine or others."""

from __future__ import annotations

from fedsim.learning.workers.local import Pool, Workers, make_workers
from fedsim.learning.workers.station import Group, Station, cohort_of

__all__ = ["Group", "Pool", "Station", "Workers", "cohort_of", "make_workers"]
