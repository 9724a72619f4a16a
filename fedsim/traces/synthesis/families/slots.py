"""Independent slots: in each slot a device is online with some probability, independent of the slot before."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from pydantic import Field, model_validator

from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.arrays import Floats, Ints
from fedsim.traces.synthesis.family import Family, Sessions, concatenated, sessions_from_slots
from fedsim.units import Duration

SLOTS_AT_ONCE = 1 << 22


class Slots(Family):
    """Base of the families of slots; their parameters include ``slot``, the length of a slot (s)."""

    @abstractmethod
    def probability(self, hour: Floats) -> Floats:
        """Probability of being online in slots whose middles are at these hours after midnight, shape (slots,)."""

    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """One uniform number per device and slot."""
        slot_s = self.params.slot
        slots = np.arange(int(np.ceil(span_s / slot_s)))
        probability = self.probability((slots + 0.5) * slot_s / 3600)
        step = max(1, SLOTS_AT_ONCE // max(1, len(slots)))
        blocks = []
        for low in range(0, len(devices), step):
            block = devices[low : low + step]
            online = stream.uniforms(block[:, None], slots[None, :]) < probability
            blocks.append(sessions_from_slots(block, online, slot_s, span_s))
        return concatenated(blocks)


class Bernoulli(Slots):
    """Online in each slot with probability p, independently."""

    name = "bernoulli"
    description = "independent slots, online with probability p in each"

    class Params(Parameters):
        """Parameters of the slots."""

        p: float = Field(0.5, ge=0, le=1)
        """Probability of being online in a slot."""
        slot: Duration = Field(600.0, gt=0)
        """Length of a slot (s)."""

    def probability(self, hour: Floats) -> Floats:
        """The same in every slot."""
        return np.full(len(hour), self.params.p)


class Cosine(Slots):
    """Online in each slot with probability m (1 + A cos(2 pi (h - h0) / 24)), h the hour of the day."""

    name = "cosine"
    description = "independent slots, probability m (1 + A cos(2 pi (h - h0) / 24))"

    class Params(Parameters):
        """Parameters of the cosine; the defaults are fitted to 1,000 phones (FLASH)."""

        mean: float = Field(0.094, ge=0, le=1)
        """Mean probability m."""
        amplitude: float = Field(0.33, ge=0, le=1)
        """Relative amplitude A."""
        peak_hour: float = Field(3.9, ge=0, lt=24)
        """Hour h0 of the peak."""
        slot: Duration = Field(600.0, gt=0)
        """Length of a slot (s)."""

        @model_validator(mode="after")
        def _is_a_probability(self) -> Cosine.Params:
            if self.mean * (1 + self.amplitude) > 1:
                raise ValueError(
                    "mean x (1 + amplitude) is more than 1, which is not a probability"
                )
            return self

    def probability(self, hour: Floats) -> Floats:
        """The cosine at each hour."""
        wave = np.cos(2 * np.pi * (hour - self.params.peak_hour) / 24)
        return np.asarray(self.params.mean * (1 + self.params.amplitude * wave))
