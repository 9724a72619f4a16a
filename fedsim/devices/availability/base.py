"""The interface of availability models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedsim.devices import DeviceContext
from fedsim.parts.component import Component, Parameters
from fedsim.traces.parameters import OnEnd, TraceParameters
from fedsim.vocabulary.arrays import Ints

if TYPE_CHECKING:
    from fedsim.traces.availability import AvailabilityIndex

OnDisconnect = Literal["drop", "pause", "finish", "send_partial"]


class AvailabilityParams(TraceParameters):
    """Parameters of every availability model."""

    on_disconnect: OnDisconnect = "drop"
    """Behavior of a client that goes offline while busy: it drops its work; pauses until it is back online; continues
    to compute and sends the update when it is back; or stops and sends the completed steps when it is back."""
    on_end: OnEnd | None = None
    """Availability beyond the end of a device's trace; by default the bundle's setting."""


class AvailabilityModel(Component, ABC):
    """Decides when each client is online and eligible; its ``Params`` derive from :class:`AvailabilityParams`."""

    Params: ClassVar[type[Parameters]] = AvailabilityParams

    def __init__(self, params: Any, context: DeviceContext) -> None:
        self.params = params
        self.context = context

    def offset_ns(self) -> Ints | int:
        """Time in the traces at simulated time 0: one number, or one per client, (N,).

        It applies to everything that the bundle contains about a device.
        """
        return 0

    @abstractmethod
    def index(self) -> AvailabilityIndex:
        """The availability of all clients; simulated time 0 is the scenario's start."""
