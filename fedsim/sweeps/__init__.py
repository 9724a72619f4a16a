"""Sweeps: many runs of one scenario, in several processes or on a cluster, resumable."""

from fedsim.sweeps.execution import SweepProgress, sweep
from fedsim.sweeps.folder import Sweep

__all__ = ["Sweep", "SweepProgress", "sweep"]
