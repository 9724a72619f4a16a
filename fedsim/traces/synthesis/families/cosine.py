"""Independent slots whose probability follows the hour of the day."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from fedsim.components import Parameters
from fedsim.randomness import Stream
from fedsim.traces.synthesis.families.bernoulli import draw_slots, slot_count
from fedsim.traces.synthesis.family import Family, Int64Array, Sessions
from fedsim.units import Duration


class Cosine(Family):
    """Online in each slot with probability m (1 + A cos(2 pi (h - h0) / 24)), h the hour of the day."""

    name = "cosine"
    description: ClassVar[str] = "independent slots, probability m (1 + A cos(2 pi (h - h0) / 24))"

    class Params(Parameters):
        """Parameters of the cosine; the defaults are the fit to 1,000 phones (FLASH)."""

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

    def __init__(self, params: Params) -> None:
        self.params = params

    def sessions(self, devices: Int64Array, span_s: float, stream: Stream) -> Sessions:
        """One uniform number per device and slot; the hour is that of the middle of the slot."""
        params = self.params
        hours = (np.arange(slot_count(span_s, params.slot)) + 0.5) * params.slot / 3600
        wave = np.cos(2 * np.pi * (hours - params.peak_hour) / 24)
        probability = params.mean * (1 + params.amplitude * wave)
        return draw_slots(devices, probability, params.slot, span_s, stream)
