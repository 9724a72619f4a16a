"""Cuts a wave of dispatches into the groups that workers train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.learning.workers import Station
from fedsim.vocabulary.timeline import Train

# Groups are not made smaller than this to occupy more workers: such a group takes a few milliseconds.
_SHARE_FLOPS = 100_000_000
# The same on CUDA, for one local step: with less work, launching it would take longer than computing it. And the
# maximum number of groups per wave.
_CUDA_SHARE_FLOPS = 50_000_000_000
_CUDA_SHARES = 8


class Grouping:
    """The rule by which the dispatches of a station are trained together."""

    def __init__(self, station: Station) -> None:
        self._kernel = station.kernel
        self._on_cuda = station.execution.device.type == "cuda"
        self._step_flops = int(station.task.flops_per_sample() or 0) * station.training.batch_size

    def groups(self, wave: Sequence[Train], workers: int) -> list[list[Train]]:
        """The wave in groups of one shape, each sorted by steps, most first; ``workers`` groups are trained at once."""
        clients = np.array([train.client for train in wave])
        steps = np.array([train.steps for train in wave])
        shapes = self._kernel.shape_class(clients)
        order = np.lexsort((-steps, shapes))
        largest = self._kernel.largest_group()
        groups: list[list[Train]] = []
        for shape in np.unique(shapes):
            members = order[shapes[order] == shape]
            pieces = -(-len(members) // largest)
            # Each worker gets a share that is large enough; if groups affect the bits, they must not depend on the
            # number of workers.
            if self._on_cuda:
                shares = len(members) * self._step_flops // _CUDA_SHARE_FLOPS
                pieces = min(len(members), max(pieces, min(_CUDA_SHARES, shares)))
            elif self._kernel.group_invariant:
                shares = int(steps[members].sum()) * self._step_flops // _SHARE_FLOPS
                fair = -(-pieces // workers) * workers
                pieces = min(len(members), max(pieces, min(fair, shares)))
            for piece in np.array_split(members, pieces):
                groups.append([wave[index] for index in piece])
        return groups
