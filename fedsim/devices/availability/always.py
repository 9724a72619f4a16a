"""Everybody is always there."""

from __future__ import annotations

from typing import ClassVar

from fedsim.devices.availability.base import AvailabilityModel, AvailabilityParams
from fedsim.traces.availability import AvailabilityIndex


class Always(AvailabilityModel):
    """All clients are online all the time."""

    name: ClassVar[str] = "always"
    Params = AvailabilityParams

    def index(self) -> AvailabilityIndex:
        """See :meth:`fedsim.devices.availability.base.AvailabilityModel.index`."""
        return AvailabilityIndex.always(self.context.clients, self.context.eligible)
