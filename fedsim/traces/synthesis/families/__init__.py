"""Families of synthetic availability: named parameters, and the sessions of any devices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedsim.parts.component import Component, discover
from fedsim.randomness import Stream
from fedsim.traces.intervals import join_touching
from fedsim.traces.tables import Floats, Ints

RESOLUTION_US = 1000
"""Synthetic instants are whole milliseconds: no source is more precise, and they compress well."""


class Sessions(NamedTuple):
    """Online intervals, sorted by device and start, disjoint and not touching, within ``[0, span)``.

    Args:
        device: device number, int64.
        start_us: first instant (us).
        end_us: first instant after it (us).
        censored: bit 0: began before the window; bit 1: continued after it.
    """

    device: Ints
    start_us: Ints
    end_us: Ints
    censored: npt.NDArray[np.int8]


class Family(Component):
    """A family of synthetic availability with fixed parameters.

    A device's intervals depend on the stream and its number alone, not on the number of devices.
    """

    description: ClassVar[str] = ""

    @abstractmethod
    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """The sessions of some devices.

        Args:
            devices: device numbers, ascending, shape (n,).
            span_s: length of the window, which starts at local midnight (s).
            stream: random numbers; keyed by device.
        """


def known_families() -> Mapping[str, type[Family]]:
    """The families that ship with fedsim, by name."""
    return discover("fedsim.traces.synthesis.families", Family)


def concatenated(blocks: Sequence[Sessions]) -> Sessions:
    """The sessions of consecutive groups of devices, concatenated."""
    return Sessions(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))


def sessions_from_cycles(cycles: Sequence[tuple[Ints, Floats, Floats]], span_s: float) -> Sessions:
    """The sessions of several groups, each with its devices, starts and ends in seconds; none without groups."""
    none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    device, start_s, end_s = (
        np.concatenate(columns) for columns in zip(none, *cycles, strict=True)
    )
    return sessions_from_seconds(device, start_s, end_s, span_s)


def sessions_from_seconds(
    device: Ints, start_s: npt.NDArray[Any], end_s: npt.NDArray[Any], span_s: float
) -> Sessions:
    """Clip raw intervals (in any order) to the window, round them, and join touching ones of a device."""
    order = np.lexsort((start_s, device))
    device = device[order]
    span = round(span_s * 1e6) // RESOLUTION_US
    ticks_per_s = 1_000_000 // RESOLUTION_US
    start = np.rint(start_s[order] * ticks_per_s).astype(np.int64)
    end = np.rint(end_s[order] * ticks_per_s).astype(np.int64)
    inside = (np.minimum(end, span) > np.maximum(start, 0)) & (end > start)
    device, start, end = device[inside], start[inside], end[inside]
    device, start, end = join_touching(device, start, end)
    censored = ((start < 0) | ((end > span) << 1)).astype(np.int8)
    return Sessions(
        device,
        np.maximum(start, 0) * RESOLUTION_US,
        np.minimum(end, span) * RESOLUTION_US,
        censored,
    )
