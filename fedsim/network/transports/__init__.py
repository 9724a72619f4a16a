"""The transports that a scenario can name, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.network.transport import Transport


def registry() -> Mapping[str, type[Transport]]:
    """The transports that ship with fedsim, by name."""
    return discover("fedsim.network.transports", Transport)
