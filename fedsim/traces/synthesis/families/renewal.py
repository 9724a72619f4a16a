"""Alternating lognormal sessions and gaps of heterogeneous devices, with a daily rhythm.

This generator reproduces measured traces: device i has a share of time online a_i ~ Beta and a rate r_i of
sessions per day ~ lognormal, joined by a Gaussian copula. Its sessions last 86400 a_i / r_i seconds on average and its
gaps 86400 (1 - a_i) / r_i, both lognormal. The rhythm is a change of clock: while a device is offline, its gap passes
at the rate 1 + A cos(2 pi (h - h0 - phase_i) / 24), so it comes online more often in proportion to that rate.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field
from scipy.special import betaincinv, ndtr

from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.synthesis.families import Family, Sessions, sessions_from_cycles
from fedsim.traces.tables import Floats, Ints
from fedsim.units import DAY_S, Duration

SHORTEST_S = 1.0
NEWTON_STEPS = 6

# Draws per device, besides its sessions and gaps.
_NEVER, _SHARE, _RATE, _PHASE, _STATE, _FIRST_GAP = range(6)
_FIRST_CYCLE = 16


class Renewal(Family):
    """Alternating lognormal sessions and gaps of heterogeneous devices, with a daily rhythm."""

    name = "renewal"
    description = "lognormal sessions and gaps, heterogeneous devices, daily rhythm; calibrated by the presets"

    class Params(Parameters):
        """Parameters of the population; the defaults are the preset ``phone_idle_charging_wifi`` without its rhythm."""

        share_a: float = Field(0.635, gt=0)
        """First parameter of the Beta distribution of the share of time online."""
        share_b: float = Field(5.608, gt=0)
        """Second parameter of that Beta distribution."""
        rate_mu: float = 0.010
        """Mean over devices of the logarithm of the sessions per day."""
        rate_sigma: float = Field(0.970, ge=0)
        """Standard deviation of that logarithm."""
        correlation: float = Field(0.65, gt=-1, lt=1)
        """Gaussian copula correlation of share and rate."""
        session_sigma: float = Field(1.31, ge=0)
        """Standard deviation of the logarithm of a device's session lengths."""
        gap_sigma: float = Field(1.71, ge=0)
        """Standard deviation of the logarithm of a device's gap lengths."""
        amplitude: float = Field(0.0, ge=0, lt=1)
        """Amplitude A of a device's daily rhythm."""
        peak_hour: float = Field(0.0, ge=0, lt=24)
        """Hour h0 at which devices come online most often."""
        phase_sigma_h: float = Field(0.0, ge=0)
        """Standard deviation of the devices' phases (h)."""
        never_available: float = Field(0.0, ge=0, le=1)
        """Share of devices that are never online."""
        lead: Duration = Field(5 * DAY_S, ge=0)
        """Time before the window at which the simulation of the devices starts (s), to reach the steady state."""

    params: Params

    def sessions(self, devices: Ints, span_s: float, stream: Stream) -> Sessions:
        """All devices advance together, one session and one gap per step, until all have passed the window."""
        params = self.params
        devices = devices[stream.uniforms(devices, _NEVER) >= params.never_available]
        share, rate = self._profiles(devices, stream)
        phase_h = params.peak_hour + params.phase_sigma_h * stream.normals(devices, _PHASE)
        session_mu = np.log(DAY_S * share / rate) - params.session_sigma**2 / 2
        gap_mu = np.log(DAY_S * (1 - share) / rate) - params.gap_sigma**2 / 2
        time = np.full(len(devices), -params.lead)
        offline = stream.uniforms(devices, _STATE) >= share
        first_gap = _lognormal(stream.normals(devices, _FIRST_GAP), gap_mu, params.gap_sigma)
        time = np.where(offline, self._after_gap(time, first_gap, phase_h), time)
        cycles = []
        draw = _FIRST_CYCLE
        alive = time < span_s
        while True:
            if not alive.all():
                devices, time, phase_h = devices[alive], time[alive], phase_h[alive]
                session_mu, gap_mu = session_mu[alive], gap_mu[alive]
            if not len(devices):
                break
            session = _lognormal(stream.normals(devices, draw), session_mu, params.session_sigma)
            gap = _lognormal(stream.normals(devices, draw + 1), gap_mu, params.gap_sigma)
            end = time + session
            seen = end > 0
            cycles.append((devices[seen], time[seen], end[seen]))
            time = self._after_gap(end, gap, phase_h)
            alive = time < span_s
            draw += 2
        return sessions_from_cycles(cycles, span_s)

    def _profiles(self, devices: Ints, stream: Stream) -> tuple[Floats, Floats]:
        """Share of time online and sessions per day of each device."""
        params = self.params
        common = stream.normals(devices, _SHARE)
        independent = stream.normals(devices, _RATE)
        rho = params.correlation
        share = betaincinv(params.share_a, params.share_b, ndtr(common))
        score = rho * common + np.sqrt(1 - rho**2) * independent
        # The Beta distribution includes shares too close to 0 and 1 for sessions of a second or more.
        return np.clip(share, 1e-9, 1 - 1e-9), np.exp(params.rate_mu + params.rate_sigma * score)

    def _after_gap(self, time: Floats, gap: Floats, phase_h: Floats) -> Floats:
        """The instant at which a gap that begins at ``time`` has passed on the device's own clock.

        That clock shows t + (A / w) sin(w (t - peak)), w = 2 pi / day; it is inverted by Newton's method for Kepler's
        equation E + A sin E = M.
        """
        amplitude = self.params.amplitude
        if not amplitude:
            return time + gap
        angular = 2 * np.pi / DAY_S
        angle = angular * (time - 3600 * phase_h)
        mean_anomaly = angle + amplitude * np.sin(angle) + angular * gap
        eccentric = mean_anomaly - amplitude * np.sin(mean_anomaly)
        for _ in range(NEWTON_STEPS):
            excess = eccentric + amplitude * np.sin(eccentric) - mean_anomaly
            # Steps are limited, because Newton's method overshoots near the clock's slowest hour.
            step = excess / (1 + amplitude * np.cos(eccentric))
            eccentric -= np.clip(step, -np.pi / 2, np.pi / 2)
        return np.maximum(time + (eccentric - angle) / angular, time + SHORTEST_S)


def _lognormal(normal: Floats, mu: Floats, sigma: float) -> Floats:
    return np.maximum(np.exp(mu + sigma * normal), SHORTEST_S)
