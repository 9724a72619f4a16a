"""Independent slots: in each slot a device is online with its probability."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedsim.components import Parameters
from fedsim.randomness import Stream
from fedsim.traces.synthesis.family import Family, Int64Array, Sessions, sessions_from_slots
from fedsim.units import Duration

SLOTS_AT_ONCE = 1 << 22


class Bernoulli(Family):
    """Online in each slot with probability p, whatever happened in the slot before."""

    name = "bernoulli"
    description: ClassVar[str] = "independent slots, online with probability p in each"

    class Params(Parameters):
        """Parameters of the slots."""

        p: float = Field(0.5, ge=0, le=1)
        """Probability of being online in a slot."""
        slot: Duration = Field(600.0, gt=0)
        """Length of a slot (s)."""

    def __init__(self, params: Params) -> None:
        self.params = params

    def sessions(self, devices: Int64Array, span_s: float, stream: Stream) -> Sessions:
        """One uniform number per device and slot."""
        probability = np.full(slot_count(span_s, self.params.slot), self.params.p)
        return draw_slots(devices, probability, self.params.slot, span_s, stream)


def slot_count(span_s: float, slot_s: float) -> int:
    """Slots that begin within the window."""
    return int(np.ceil(span_s / slot_s))


def draw_slots(
    devices: Int64Array,
    probability: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    slot_s: float,
    span_s: float,
    stream: Stream,
) -> Sessions:
    """Independent slots with the probability of each slot, shape (slots,)."""
    slots = np.arange(len(probability))
    step = max(1, SLOTS_AT_ONCE // max(1, len(slots)))
    parts = []
    for low in range(0, len(devices), step):
        block = devices[low : low + step]
        online = stream.uniforms(block[:, None], slots[None, :]) < probability
        parts.append(sessions_from_slots(block, online, slot_s, span_s))
    return Sessions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
