"""Groups of devices that take turns."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.arrays import Ints
from fedsim.traces.synthesis.family import Family, Sessions, sessions_from_seconds
from fedsim.units import Duration


class Periodic(Family):
    """Device d belongs to group d mod G; group g comes online at g/G of each period, for a share of it."""

    name = "periodic"
    description = "groups of devices that take turns within a period"

    class Params(Parameters):
        """Parameters of the periodic groups."""

        groups: int = Field(4, ge=1)
        """Number of groups G."""
        period: Duration = Field(86400.0, gt=0)
        """Length of a period (s)."""
        share: float = Field(0.25, gt=0, le=1)
        """Share of the period in which a group is online."""

    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """Deterministic: the same turns in every period."""
        period, groups = self.params.period, self.params.groups
        # One more period before time 0, for turns that cross it.
        turns = np.arange(-1, int(np.ceil(span_s / period)))
        start = turns[None, :] * period + (devices % groups)[:, None] * (period / groups)
        device = np.repeat(devices, len(turns))
        start = start.ravel()
        return sessions_from_seconds(device, start, start + self.params.share * period, span_s)
