"""Simple families: baselines and populations for tests; measured traces differ."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from pydantic import Field, model_validator

from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.synthesis.families import (
    Family,
    Sessions,
    concatenated,
    sessions_from_cycles,
    sessions_from_seconds,
)
from fedsim.traces.tables import Bools, Floats, Ints
from fedsim.units import Duration

SLOTS_AT_ONCE = 1 << 22


class Always(Family):
    """Online for the whole window."""

    name = "always"
    description = "every device is always online"

    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """One interval per device."""
        length = len(devices)
        return sessions_from_seconds(devices, np.zeros(length), np.full(length, span_s), span_s)


class Periodic(Family):
    """Device d belongs to group d mod G; group g comes online at g/G of each period, for a share of it."""

    name = "periodic"
    description = "groups of devices that take turns within a period"

    class Params(Parameters):
        """Parameters of the periodic groups."""

        groups: int = Field(4, ge=1)
        """Number of groups G."""
        period: Duration = Field(86400.0, gt=0)
        """Length of a period (s)."""
        share: float = Field(0.25, gt=0, le=1)
        """Share of the period in which a group is online."""

    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """Deterministic: the same turns in every period."""
        period, groups = self.params.period, self.params.groups
        # One more period before time 0, for turns that cross it.
        turns = np.arange(-1, int(np.ceil(span_s / period)))
        start = turns[None, :] * period + (devices % groups)[:, None] * (period / groups)
        device = np.repeat(devices, len(turns))
        start = start.ravel()
        return sessions_from_seconds(device, start, start + self.params.share * period, span_s)


class Markov(Family):
    """Exponential sessions and gaps, in steady state from the start.

    A baseline only: measured traces have far more short and very long sessions.
    """

    name = "markov"
    description = "exponential sessions and gaps (a baseline; real traces differ)"

    class Params(Parameters):
        """Parameters of the chain; the defaults are the means of 1,000 phones (FLASH)."""

        session: Duration = Field(2054.0, gt=0)
        """Mean time online (s)."""
        gap: Duration = Field(11758.0, gt=0)
        """Mean time offline (s)."""

    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """Residual times are exponential too, so the chain can start at the beginning of the window."""
        session, gap = self.params.session, self.params.gap
        online = stream.uniforms(devices, 0) < session / (session + gap)
        time = np.where(online, 0.0, -gap * np.log(stream.uniforms(devices, 1)))
        cycles = []
        draw = 2
        while len(devices):
            end = time - session * np.log(stream.uniforms(devices, draw))
            cycles.append((devices, time, end))
            time = end - gap * np.log(stream.uniforms(devices, draw + 1))
            draw += 2
            alive = time < span_s
            devices, time = devices[alive], time[alive]
        return sessions_from_cycles(cycles, span_s)


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
            blocks.append(_runs(block, online, slot_s, span_s))
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


def _runs(devices: Ints, online: Bools, slot_s: float, span_s: float) -> Sessions:
    """Runs of slots in which a device is online; ``online`` has shape (devices, slots)."""
    edges = np.diff(online.astype(np.int8), axis=1, prepend=0, append=0)
    device, start = np.nonzero(edges == 1)
    _, end = np.nonzero(edges == -1)
    return sessions_from_seconds(devices[device], start * slot_s, end * slot_s, span_s)
