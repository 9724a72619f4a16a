"""Many runs from one scenario: planned, executed on processes or a cluster, resumable."""

from fedsim.sweeps.execution import SweepProgress, sweep
from fedsim.sweeps.folder import Sweep

__all__ = ["Sweep", "SweepProgress", "sweep"]
