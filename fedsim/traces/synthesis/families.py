"""Families of synthetic availability: named parameters, and the intervals in which any devices are online.

``renewal`` reproduces measured traces: device i has a share of time online a_i ~ Beta and a rate r_i of sessions per
day ~ lognormal, joined by a Gaussian copula. Its sessions last 86400 a_i / r_i seconds on average and its gaps
86400 (1 - a_i) / r_i, both lognormal. The rhythm is a change of clock: while a device is offline, its gap passes at the
rate 1 + A cos(2 pi (h - h0 - phase_i) / 24), so it comes online more often in proportion to that rate. The other
families are baselines and populations for tests; measured traces differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.bundle import Eligibility
from fedsim.traces.intervals import join_touching
from fedsim.units import DAY_S, US_PER_S, Duration
from fedsim.vocabulary.arrays import Floats, Ints

RESOLUTION_US = 1000
"""Synthetic instants are whole milliseconds: no source is more precise, and they compress well."""
SHORTEST_S = 1.0
NEWTON_STEPS = 6
SLOTS_AT_ONCE = 1 << 22

# Draws of a device of ``renewal``, besides its sessions and gaps.
_NEVER, _SHARE, _RATE, _PHASE, _STATE, _FIRST_GAP = range(6)
_FIRST_CYCLE = 16

Intervals = Iterator[tuple[Ints, Floats, Floats]]
"""Groups of intervals: the number of the device, start and end (s) of each."""


@dataclass(frozen=True)
class Population:
    """A family of synthetic availability, or a preset: a family with calibrated parameters.

    Args:
        description: one line for the list of populations.
        intervals: from parameters, the numbers of devices (ascending), the length of the window (s; it starts at local
            midnight) and random numbers to the intervals in which the devices are online, in any order. Those of a
            device depend on the random numbers and its number alone; they may reach beyond the window.
        Params: the model of its parameters.
        family: name of the family of a preset.
        params: parameters that differ from their defaults.
        kind: kind of the devices.
        source: traces that it was fitted to.
        eligibility: what "available" means, if that is not the description.
        compute: parameters of the compute columns that differ from their defaults.
        network: parameters of the network columns that differ from their defaults.
    """

    description: str
    intervals: Callable[[Any, Ints, float, Stream], Intervals]
    Params: type[Parameters] = Parameters
    family: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "phone"
    source: str = ""
    eligibility: Eligibility | None = None
    compute: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)

    def sessions(
        self, params: Any, devices: Ints, span_s: float, stream: Stream
    ) -> tuple[Ints, Ints, Ints, npt.NDArray[np.int8]]:
        """The intervals of some devices, clipped to the window and rounded; touching ones are joined.

        Returns:
            Number of the device, start and end (us), by device and start; and censored: bit 0: began before the window;
            bit 1: continued after it.
        """
        none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        groups = self.intervals(params, devices, span_s, stream)
        device, start_s, end_s = map(np.concatenate, zip(none, *groups, strict=True))
        order = np.lexsort((start_s, device))
        device = device[order]
        ticks_per_s = US_PER_S // RESOLUTION_US
        span = round(span_s * 1e6) // RESOLUTION_US
        start, end = (
            np.rint(instant[order] * ticks_per_s).astype(np.int64) for instant in (start_s, end_s)
        )
        inside = (np.minimum(end, span) > np.maximum(start, 0)) & (end > start)
        device, start, end = join_touching(device[inside], start[inside], end[inside])
        return (
            device,
            np.maximum(start, 0) * RESOLUTION_US,
            np.minimum(end, span) * RESOLUTION_US,
            ((start < 0) | ((end > span) << 1)).astype(np.int8),
        )


class RenewalParams(Parameters):
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


def _renewal(params: RenewalParams, devices: Ints, span_s: float, stream: Stream) -> Intervals:
    """All devices advance together, one session and one gap per step, until all have passed the window."""
    devices = devices[stream.uniforms(devices, _NEVER) >= params.never_available]
    share, rate = _profiles(params, devices, stream)
    phase_h = params.peak_hour + params.phase_sigma_h * stream.normals(devices, _PHASE)
    session_mu = np.log(DAY_S * share / rate) - params.session_sigma**2 / 2
    gap_mu = np.log(DAY_S * (1 - share) / rate) - params.gap_sigma**2 / 2
    time = np.full(len(devices), -params.lead)
    offline = stream.uniforms(devices, _STATE) >= share
    first_gap = _lognormal(stream.normals(devices, _FIRST_GAP), gap_mu, params.gap_sigma)
    time = np.where(offline, _after_gap(params, time, first_gap, phase_h), time)
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
        yield devices[seen], time[seen], end[seen]
        time = _after_gap(params, end, gap, phase_h)
        alive = time < span_s
        draw += 2


def _profiles(params: RenewalParams, devices: Ints, stream: Stream) -> tuple[Floats, Floats]:
    """Share of time online and sessions per day of each device."""
    from scipy.special import betaincinv, ndtr

    common = stream.normals(devices, _SHARE)
    independent = stream.normals(devices, _RATE)
    rho = params.correlation
    share = betaincinv(params.share_a, params.share_b, ndtr(common))
    score = rho * common + np.sqrt(1 - rho**2) * independent
    # The Beta distribution includes shares too close to 0 and 1 for sessions of a second or more.
    return np.clip(share, 1e-9, 1 - 1e-9), np.exp(params.rate_mu + params.rate_sigma * score)


def _after_gap(params: RenewalParams, time: Floats, gap: Floats, phase_h: Floats) -> Floats:
    """The instant at which a gap that begins at ``time`` has passed on the device's own clock.

    That clock shows t + (A / w) sin(w (t - peak)), w = 2 pi / day; it is inverted by Newton's method for Kepler's
    equation E + A sin E = M.
    """
    amplitude = params.amplitude
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


def _always(params: Parameters, devices: Ints, span_s: float, stream: Stream) -> Intervals:
    """One interval per device."""
    yield devices, np.zeros(len(devices)), np.full(len(devices), span_s)


class PeriodicParams(Parameters):
    """Parameters of the periodic groups."""

    groups: int = Field(4, ge=1)
    """Number of groups G."""
    period: Duration = Field(86400.0, gt=0)
    """Length of a period (s)."""
    share: float = Field(0.25, gt=0, le=1)
    """Share of the period in which a group is online."""


def _periodic(params: PeriodicParams, devices: Ints, span_s: float, stream: Stream) -> Intervals:
    """Device d belongs to group d mod G; group g comes online at g/G of each period, for a share of it."""
    # One more period before time 0, for turns that cross it.
    turns = np.arange(-1, int(np.ceil(span_s / params.period)))
    first = (devices % params.groups)[:, None] * (params.period / params.groups)
    start = (turns[None, :] * params.period + first).ravel()
    yield np.repeat(devices, len(turns)), start, start + params.share * params.period


class MarkovParams(Parameters):
    """Parameters of the chain; the defaults are the means of 1,000 phones (FLASH)."""

    session: Duration = Field(2054.0, gt=0)
    """Mean time online (s)."""
    gap: Duration = Field(11758.0, gt=0)
    """Mean time offline (s)."""


def _markov(params: MarkovParams, devices: Ints, span_s: float, stream: Stream) -> Intervals:
    """Exponential sessions and gaps; residual times are exponential too, so the chain starts with the window."""
    session, gap = params.session, params.gap
    online = stream.uniforms(devices, 0) < session / (session + gap)
    time = np.where(online, 0.0, -gap * np.log(stream.uniforms(devices, 1)))
    draw = 2
    while len(devices):
        end = time - session * np.log(stream.uniforms(devices, draw))
        yield devices, time, end
        time = end - gap * np.log(stream.uniforms(devices, draw + 1))
        draw += 2
        alive = time < span_s
        devices, time = devices[alive], time[alive]


class BernoulliParams(Parameters):
    """Parameters of the slots."""

    p: float = Field(0.5, ge=0, le=1)
    """Probability of being online in a slot."""
    slot: Duration = Field(600.0, gt=0)
    """Length of a slot (s)."""


class CosineParams(Parameters):
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
    def _is_a_probability(self) -> CosineParams:
        if self.mean * (1 + self.amplitude) > 1:
            raise ValueError("mean x (1 + amplitude) is more than 1, which is not a probability")
        return self


def _slots(
    params: BernoulliParams | CosineParams, devices: Ints, span_s: float, stream: Stream
) -> Intervals:
    """Online in each slot independently: one uniform number per device and slot."""
    slots = np.arange(int(np.ceil(span_s / params.slot)))
    if isinstance(params, CosineParams):
        hour = (slots + 0.5) * params.slot / 3600
        wave = np.cos(2 * np.pi * (hour - params.peak_hour) / 24)
        probability = params.mean * (1 + params.amplitude * wave)
    else:
        probability = np.full(len(slots), params.p)
    step = max(1, SLOTS_AT_ONCE // max(1, len(slots)))
    for low in range(0, len(devices), step):
        some = devices[low : low + step]
        online = stream.uniforms(some[:, None], slots[None, :]) < probability
        edges = np.diff(online.astype(np.int8), axis=1, prepend=0, append=0)
        device, start = np.nonzero(edges == 1)
        start_s, end_s = (
            slot.astype(np.float64) * params.slot for slot in (start, np.nonzero(edges == -1)[1])
        )
        yield some[device], start_s, end_s


FAMILIES = {
    "always": Population("every device is always online", _always),
    "bernoulli": Population(
        "independent slots, online with probability p in each", _slots, BernoulliParams
    ),
    "cosine": Population(
        "independent slots, probability m (1 + A cos(2 pi (h - h0) / 24))", _slots, CosineParams
    ),
    "markov": Population(
        "exponential sessions and gaps (a baseline; real traces differ)", _markov, MarkovParams
    ),
    "periodic": Population(
        "groups of devices that take turns within a period", _periodic, PeriodicParams
    ),
    "renewal": Population(
        "lognormal sessions and gaps, heterogeneous devices, daily rhythm; calibrated by the presets",
        _renewal,
        RenewalParams,
    ),
}
"""The families by name."""
