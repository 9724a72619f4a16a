"""Synthetic compute and network columns, and series of their variation over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.randomness import Stream
from fedsim.traces.tables import id_column
from fedsim.units import US_PER_S, Duration, Rate
from fedsim.vocabulary.arrays import Bools, Floats
from fedsim.vocabulary.formatting import format_count

# Number of phones by memory in GB (952 phones, Propius), and the Spearman correlation of memory and speed.
RAM_GB = {1: 14, 1.5: 7, 2: 69, 3: 82, 4: 204, 6: 181, 8: 268, 12: 110, 16: 17}
RAM_SPEED_CORRELATION = 0.79
MOST_SERIES_ROWS = 200_000_000


class ComputeParams(Parameters):
    """Compute speed of devices: relative speed is lognormal around 1 and truncated on either side."""

    speed_sigma: float = Field(0.78, ge=0)
    """Standard deviation of the logarithm of the relative speed (952 phones: 0.784)."""
    speed_limit: float = Field(8.0, gt=1)
    """Largest relative speed; its inverse is the smallest."""
    step_fixed: Duration = 0.010
    """Part of a local step's time (s) on the reference device that is independent of the batch (LeNet: 10 ms)."""
    sample: Duration = 0.00064
    """Time (s) per sample of a step on the reference device (LeNet on a phone: 0.64 ms)."""
    ram_factor: float = Field(1.0, gt=0)
    """Factor by which memory differs from that of 952 phones (1 to 16 GB, median 6 GB)."""
    ram_correlation: float = Field(RAM_SPEED_CORRELATION, ge=-1, le=1)
    """Rank correlation (Spearman) of memory and speed."""


class NetworkParams(Parameters):
    """Rates and latencies of the devices' links."""

    down: Rate = 6_496_000.0
    """Median rate to the device (bit/s; FedScale's phones: exp(8.779) kbit/s)."""
    down_sigma: float = Field(1.164, ge=0)
    """Standard deviation of the logarithm of that rate."""
    up_ratio: float = Field(0.2, gt=0)
    """Median ratio of the rate from the device to the rate to it (4G: 1/5)."""
    up_ratio_sigma: float = Field(0.3, ge=0)
    """Standard deviation of the logarithm of that ratio."""
    rtt: Duration = 0.075
    """Median round-trip time (s; 4G: 75 ms)."""
    rtt_sigma: float = Field(0.5, ge=0)
    """Standard deviation of the logarithm of the round-trip time."""
    bandwidth_cv: float = Field(0.7, ge=0)
    """Coefficient of variation of the rate over time (LTE: 0.7)."""


class ComputeSeriesParams(Parameters):
    """Variation of a device's speed over time: autocorrelated lognormal noise, and a straggler state."""

    piece: Duration = Field(600.0, gt=0)
    """Length (s) of the pieces of constant speed."""
    sd: float = Field(0.075, ge=0)
    """Standard deviation of the logarithm of the multiplier."""
    correlation: float = Field(0.7, ge=0, lt=1)
    """Correlation of that logarithm between adjacent pieces."""
    straggler_share: float = Field(0.03, ge=0, lt=1)
    """Share of time in the straggler state."""
    straggler_length: float = Field(3.0, ge=1)
    """Mean number of pieces of a stay in the straggler state."""
    straggler_low: float = Field(1.5, ge=1)
    """Smallest slowdown of a straggler."""
    straggler_high: float = Field(4.0, ge=1)
    """Largest slowdown of a straggler."""


class NetworkSeriesParams(Parameters):
    """Variation of a link's rate over time: autocorrelated lognormal, with outages."""

    series: int = Field(32, ge=1)
    """Number of different series per direction; each device follows one from a random offset."""
    length: Duration = Field(3600.0, gt=0)
    """Length of a series (s); it repeats."""
    piece: Duration = Field(1.0, gt=0)
    """Length (s) of the pieces of constant rate."""
    cv: float = Field(0.7, ge=0)
    """Coefficient of variation of the rate outside outages (3G 0.4, LTE 0.7, 5G 1.2 to 1.6)."""
    correlation: float = Field(0.86, ge=0, lt=1)
    """Correlation of the logarithm of the rate between adjacent pieces."""
    outage_share: float = Field(0.05, ge=0, lt=1)
    """Share of time without throughput."""
    outage_median: Duration = Field(1.5, gt=0)
    """Median length of an outage (s)."""
    outage_sigma: float = Field(1.2, ge=0)
    """Standard deviation of the logarithm of its length."""


Columns = dict[str, Any]
"""Columns of a table by name, for :func:`~fedsim.traces.tables.make_table`."""


def compute_table(params: ComputeParams, ids: Any, stream: Stream) -> Columns:
    """The table ``compute``: one training row per device, for any task."""
    from scipy.special import ndtr, ndtri

    devices = np.arange(len(ids))
    uniform = stream.uniforms(devices)
    if params.speed_sigma:
        reach = ndtr(-np.log(params.speed_limit) / params.speed_sigma)
        speed = np.exp(params.speed_sigma * ndtri(reach + uniform * (1 - 2 * reach)))
    else:
        speed = np.ones(len(ids))
    pearson = pearson_of_spearman(params.ram_correlation)
    independent = np.sqrt(1 - pearson**2) * stream.normals(devices, 1)
    rank = ndtr(pearson * ndtri(uniform) + independent)
    phones = np.cumsum(list(RAM_GB.values()))
    step = np.searchsorted(phones[:-1] / phones[-1], rank, side="right")
    ram_bytes = np.rint(params.ram_factor * 1e9 * np.array(list(RAM_GB))[step]).astype(np.int64)
    return {
        "device_id": id_column(devices, ids),
        "task": "*",
        "phase": "training",
        "step_fixed_s": params.step_fixed / speed,
        "sample_s": params.sample / speed,
        "relative_speed": speed,
        "ram_bytes": ram_bytes,
    }


def pearson_of_spearman(spearman: float) -> float:
    """The correlation of a Gaussian copula with this rank correlation (Spearman)."""
    return float(2 * np.sin(np.pi * spearman / 6))


def network_table(params: NetworkParams, ids: Any, stream: Stream) -> Columns:
    """The table ``network``: one row down and one row up per device."""
    devices = np.arange(len(ids))
    down = params.down * np.exp(params.down_sigma * stream.normals(devices, 0))
    ratio = params.up_ratio * np.exp(params.up_ratio_sigma * stream.normals(devices, 1))
    rtt = params.rtt * np.exp(params.rtt_sigma * stream.normals(devices, 2))
    return {
        "device_id": id_column(np.repeat(devices, 2), ids),
        "direction": id_column(np.tile(np.array([0, 1]), len(ids)), ["down", "up"]),
        "bandwidth_bps": np.stack([down, down * ratio], axis=1).ravel(),
        "bandwidth_cv": params.bandwidth_cv,
        "rtt_s": np.repeat(rtt, 2),
    }


def _autoregressive(normal: Floats, correlation: float) -> Floats:
    """Stationary AR(1) series of unit variance along the last axis, from independent normal numbers."""
    from scipy.signal import lfilter

    scaled = normal * np.sqrt(1 - correlation**2)
    scaled[..., 0] = normal[..., 0]
    result: Floats = lfilter([1.0], [1.0, -correlation], scaled, axis=-1)
    return result


def _check_rows(rows: int, table: str, hint: str) -> None:
    if rows > MOST_SERIES_ROWS:
        raise UserError(
            f"the table {table} would have {format_count(rows)} rows, more than {format_count(MOST_SERIES_ROWS)}",
            hint=hint,
        )


def compute_series_table(
    params: ComputeSeriesParams, ids: Any, span_s: float, stream: Stream
) -> Columns:
    """The table ``compute_series``: multipliers of the step time of each device over the whole window."""
    pieces = int(np.ceil(span_s / params.piece))
    _check_rows(pieces * len(ids), "compute_series", "use longer pieces or fewer devices")
    devices, numbers = np.arange(len(ids))[:, None], np.arange(pieces)[None, :]
    noise = _autoregressive(stream.normals(devices, 3 * numbers), params.correlation)
    straggles = _two_states(
        stream.uniforms(devices, 3 * numbers + 1), params.straggler_share, params.straggler_length
    )
    # The slowdown of a stay is the one drawn at its first piece.
    begins = straggles & ~np.pad(straggles[:, :-1], ((0, 0), (1, 0)))
    first_piece = np.maximum.accumulate(np.where(begins, numbers, 0), axis=1)
    depth = params.straggler_high - params.straggler_low
    slow_down = params.straggler_low + depth * stream.uniforms(devices, 3 * first_piece + 2)
    multiplier = np.exp(params.sd * noise) * np.where(straggles, slow_down, 1.0)
    start = np.rint(np.minimum(np.arange(pieces + 1) * params.piece, span_s) * US_PER_S)
    start = start.astype(np.int64)
    return {
        "device_id": id_column(np.repeat(np.arange(len(ids)), pieces), ids),
        "start_us": np.tile(start[:-1], len(ids)),
        "dur_us": np.tile(np.diff(start), len(ids)),
        "multiplier": multiplier.ravel().astype(np.float32),
    }


def _two_states(uniform: Floats, share: float, length: float) -> Bools:
    """A two-state chain along the last axis: true in ``share`` of the pieces, in stays of mean length ``length``."""
    leave = 1 / length
    enter = min(1.0, leave * share / (1 - share))
    state = np.zeros(uniform.shape, np.bool_)
    state[:, 0] = uniform[:, 0] < share
    for piece in range(1, uniform.shape[1]):
        state[:, piece] = np.where(
            state[:, piece - 1], uniform[:, piece] >= leave, uniform[:, piece] < enter
        )
    return state


def network_series_tables(
    params: NetworkSeriesParams, bandwidth_bps: Floats, ids: Any, stream: Stream
) -> tuple[Columns, Columns]:
    """The tables ``network_series`` (mean rate 1 Mbit/s) and ``network_assign`` (scaled to each device's mean rate)."""
    pieces = int(np.ceil(params.length / params.piece))
    count = 2 * params.series
    _check_rows(pieces * count, "network_series", "use fewer or shorter series, or longer pieces")
    numbers = np.arange(pieces)
    names = [f"{way}-{i:04d}" for way in ("down", "up") for i in range(params.series)]
    sigma = np.sqrt(np.log1p(params.cv**2))
    normal = stream.normals(np.arange(count)[:, None], numbers[None, :])
    rate = np.exp(sigma * _autoregressive(normal, params.correlation) - sigma**2 / 2)
    for number in range(count):
        rate[number, _outages(params, pieces, stream.generator(number, 1 << 40))] = 0.0
    means = rate.mean(axis=1, keepdims=True)
    rate *= 1e6 / np.where(means > 0, means, 1.0)
    # Adjacent pieces of equal rate (outages) become one row.
    differs = np.ones(rate.shape, np.bool_)
    differs[:, 1:] = rate[:, 1:] != rate[:, :-1]
    row_series, row_piece = np.nonzero(differs)
    edges = np.rint(np.minimum(np.arange(pieces + 1) * params.piece, params.length) * US_PER_S)
    start = edges.astype(np.int64)[row_piece]
    total_us = round(params.length * US_PER_S)
    is_last = np.append(row_series[1:] != row_series[:-1], True)
    end = np.where(is_last, total_us, np.append(start[1:], total_us))
    directions = id_column((row_series >= params.series).astype(np.int64), ["down", "up"])
    series = {
        "series_id": id_column(row_series, names),
        "direction": directions,
        "start_us": start,
        "dur_us": end - start,
        "rate_bps": rate[row_series, row_piece],
    }
    devices = np.arange(len(ids))
    followed = (stream.uniforms(devices, 1 << 41) * params.series).astype(np.int64)
    offset = (stream.uniforms(devices, (1 << 41) + 1) * pieces).astype(np.int64)
    offset_us = np.rint(offset * params.piece * US_PER_S).astype(np.int64)
    follows = np.stack([followed, followed + params.series], axis=1).ravel()
    assign = {
        "device_id": id_column(np.repeat(devices, 2), ids),
        "series_id": id_column(follows, names),
        "offset_us": np.repeat(offset_us, 2),
        "scale": (bandwidth_bps / 1e6).astype(np.float32),
    }
    return series, assign


def _outages(params: NetworkSeriesParams, pieces: int, generator: np.random.Generator) -> Bools:
    """The mask of the pieces of a series without throughput: lognormal outages between exponential gaps."""
    outage = np.zeros(pieces, np.bool_)
    if not params.outage_share:
        return outage
    mean = params.outage_median * np.exp(params.outage_sigma**2 / 2)
    gap = mean * (1 - params.outage_share) / params.outage_share
    start = generator.exponential(gap)
    while start < params.length:
        length = params.outage_median * np.exp(params.outage_sigma * generator.normal())
        # An outage takes the pieces whose middle it covers, which preserves the share of time.
        edges = np.array([start, start + length])
        low, high = np.ceil(edges / params.piece - 0.5).astype(np.int64)
        outage[low:high] = True
        start += length + generator.exponential(gap)
    return outage
