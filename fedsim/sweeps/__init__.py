"""Sweeps: many runs of one scenario, in several processes or on a cluster, resumable."""

from fedsim.sweeps.cluster import Ray, Slurm
from fedsim.sweeps.execution import SweepProgress, sweep
from fedsim.sweeps.folder import Sweep
from fedsim.sweeps.precision import Precision, sweep_to_precision

__all__ = ["Precision", "Ray", "Slurm", "Sweep", "SweepProgress", "sweep", "sweep_to_precision"]
