"""Two-state Markov chains in continuous time: exponential sessions and gaps."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.arrays import Ints
from fedsim.traces.synthesis.family import Family, Sessions, sessions_from_cycles
from fedsim.units import Duration

_STATE = 0


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
        online = stream.uniforms(devices, _STATE) < session / (session + gap)
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
