"""Availability in short, regular windows, so that a deployment of a minute sees devices come and go."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedsim.devices.availability.base import AvailabilityModel, AvailabilityParams
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import Duration

_GOLDEN = 0.6180339887498949  # spreads the phases of any number of clients evenly


class WindowsParams(AvailabilityParams):
    """Parameters of windows."""

    period: Duration = Field(gt=0)
    """Time from one window of a client to its next."""
    online: float = Field(gt=0, lt=1)
    """Share of the period that a client is online."""


class Windows(AvailabilityModel):
    """Every client is online for the same share of every period, each with its own phase."""

    name: ClassVar[str] = "windows"
    Params = WindowsParams
    params: WindowsParams

    def index(self) -> AvailabilityIndex:
        """One window per period, at phases spread by the golden ratio."""
        clients = self.context.clients
        period_us = round(self.params.period * 1e6)
        zeros = np.zeros(clients, np.int64)
        phase = np.arange(1, clients + 1) * _GOLDEN % 1.0
        return AvailabilityIndex(
            np.array([0, round(self.params.online * period_us)]),
            zeros,
            zeros + 2,
            (phase * period_us).astype(np.int64),
            zeros + period_us,
        )
