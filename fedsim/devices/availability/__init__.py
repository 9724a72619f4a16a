"""Availability models: when a client is online and eligible. One file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.devices.availability.base import AvailabilityModel


def registry() -> Mapping[str, type[AvailabilityModel]]:
    """The availability models that ship with fedsim, by name."""
    return discover("fedsim.devices.availability", AvailabilityModel)
