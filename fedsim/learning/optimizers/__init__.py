"""Optimizers of local steps. One file each."""

from fedsim.learning.optimizers.base import Optimizer as Optimizer
from fedsim.learning.optimizers.base import OptimizerParams as OptimizerParams
