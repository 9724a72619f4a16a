"""The interface of availability models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from fedsim.components import Component, Parameters
from fedsim.devices.context import DeviceContext
from fedsim.traces.availability import AvailabilityIndex

OnDisconnect = Literal["drop", "pause", "finish", "send_partial"]


class AvailabilityParams(Parameters):
    """Parameters of every availability model."""

    on_disconnect: OnDisconnect = "drop"
    """A client that goes offline at work: drops it; pauses and goes on when it is back; computes on and sends on
    return;
    or stops and sends the steps it has done on return."""


class AvailabilityModel(Component, ABC):
    """When each client is online and eligible."""

    def __init__(self, params: Any, context: DeviceContext) -> None:
        self.params = params
        self.context = context

    @abstractmethod
    def index(self) -> AvailabilityIndex:
        """The availability of all clients; simulated time 0 is the scenario's start."""
