"""The page of a calibration: the estimates, what the log cannot show, and how well they predict the log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.analysis.figures.base import Column, Figure, sentence
from fedsim.analysis.figures.lines import Line, cumulative, line_figure, places
from fedsim.analysis.headline import Tile
from fedsim.analysis.pages import rendered, write_page
from fedsim.calibration.calibrating import QUANTILES, Calibration
from fedsim.calibration.estimates import Varying
from fedsim.calibration.prediction import Lateness, Prediction, verdict
from fedsim.calibration.transfers import describe
from fedsim.vocabulary.formatting import (
    ABSENT,
    Kind,
    format_count,
    format_duration,
    format_interval,
    format_level,
    format_number,
    format_roughly,
    format_share,
)

_DEVICES = 200
"""Maximum number of devices that the page lists."""
_CLOCK_S = 1e-6
"""Time between rounds that is rounding."""
_EXACT = 1e-4
"""Relative error below which a value is shown as exact."""
_LATENCY_FROM = {"log": "", "scenario": "of the scenario", "nothing": "not shown by the log"}
_PROBABILITIES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
"""Limits of the groups in which predicted probabilities are compared with the log."""
_CONSTANT = 1e-6
"""Relative spread below which samples count as one value: their distribution functions would only show rounding."""


def write_calibration_page(calibration: Calibration, path: Path) -> None:
    """Write the page."""
    compared = list(_distributions(calibration))
    predicted = list(_bands(calibration.predictions))
    tables = [_quantiles(calibration), _coverage(calibration.predictions), _devices(calibration)]
    matches = ""
    if (late := calibration.lateness) is not None:
        tables.append(_lateness(late))
        skill = "" if math.isnan(late.skill) else f" Brier skill score {format_number(late.skill)}."
        matches = (
            f"The more likely outcome matches the log for {format_share(late.right)} of "
            f"{format_count(len(late.late))} dispatches; always predicting the more common one would match "
            f"{format_share(late.commonest)}.{skill}"
        )
    figures = {figure.id: figure for figure in (*compared, *predicted, *tables)}
    page = rendered(
        "calibration.html.j2",
        figures,
        title="Calibration",
        verdict=verdict(calibration.predictions),
        tiles=[tile._replace(label=sentence(tile.label)) for tile in summary(calibration)],
        flags=calibration.flags,
        compared=compared,
        predicted=predicted,
        has_scenario=bool(calibration.distributions),
        late=matches,
    )
    write_page(path, page)


def summary(calibration: Calibration) -> list[Tile]:
    """The main numbers, with labels in lower case."""
    estimates = calibration.estimates
    (step_s, down, up, latency_s), errors = estimates.medians
    rows = [
        Tile("devices", format_count(len(estimates.clients))),
        Tile("completed dispatches", format_count(float(estimates.dispatches.sum()))),
        Tile("median step time", _seconds(step_s, errors[0])),
        Tile("variation of a dispatch's step time", _variation(estimates.step_s)),
    ]
    if estimates.knows_links:
        medians = (("down", down, errors[1]), ("up", up, errors[2]))
        for (way, rate, error), rates in zip(medians, estimates.rates_bps, strict=True):
            note = f"varies by {_variation(rates)}" if rates.cv >= _EXACT else ""
            rows.append(Tile(f"median rate {way}", _rate(rate, error), note))
        note = _LATENCY_FROM[estimates.latency_from]
        latency = _seconds(latency_s, 0.0 if note else errors[3])
        rows.append(Tile("median one-way latency", latency, note))
        rows.append(Tile("transport", describe(estimates.transport)))
    if estimates.rounds.gap_s > _CLOCK_S:
        between = _seconds(estimates.rounds.gap_s, estimates.rounds.gap_error_s)
        rows.append(Tile("time between rounds", between))
    if calibration.power:
        watts = [f"{name[:-2]} {format_number(each)} W" for name, each in calibration.power.items()]
        rows.append(Tile("power above idle, and idle", ", ".join(watts)))
    if (late := calibration.lateness) is not None:
        right, number = format_share(late.right), format_count(len(late.late))
        rows.append(
            Tile("late or in time", f"{right} predicted correctly", f"of {number} dispatches")
        )
    return rows


def document(calibration: Calibration) -> dict[str, object]:
    """The estimates with their relative standard errors, and how well the log is predicted, as plain data."""
    estimates, late = calibration.estimates, calibration.lateness

    def number(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    medians, errors = estimates.medians
    names = ("step_s", "down_bps", "up_bps", "latency_s")
    varying = dict(zip(names, (estimates.step_s, *estimates.rates_bps), strict=False))
    known = estimates.latency_from == "log"
    columns = {
        **{key: each.mean for key, each in varying.items()},
        **{f"{key.partition('_')[0]}_relative_error": each.error for key, each in varying.items()},
        "latency_s": estimates.latency_s,
        "latency_error_s": estimates.latency_errors * (1.0 if known else np.nan),
    }
    return {
        "medians": {
            name: {"value": number(value), "error": number(error)}
            for name, value, error in zip(names, medians, errors, strict=True)
        },
        "latency_from": estimates.latency_from,
        "between_rounds_s": {
            "value": number(estimates.rounds.gap_s),
            "error": number(estimates.rounds.gap_error_s),
        },
        "power": calibration.power,
        "variation": {
            name: {"cv": each.cv, "relative_error": each.cv_error} if each.shows_spread else None
            for name, each in varying.items()
        },
        "devices": [
            {"device": name, "dispatches": int(estimates.dispatches[row])}
            | {key: number(column[row]) for key, column in columns.items()}
            for row, name in enumerate(estimates.clients)
        ],
        "lateness": late
        and {
            "dispatches": len(late.late),
            "late": int(late.late.sum()),
            "right": late.right,
            "commonest": late.commonest,
            "brier": late.brier,
            "skill": number(late.skill),
        },
    }


def _distributions(calibration: Calibration) -> Iterator[Figure]:
    """Logged and simulated distribution functions of the quantities that are not constant."""
    for name, pair in calibration.distributions.items():
        logged, simulated = map(np.asarray, pair)
        every = np.concatenate([logged, simulated])
        if np.ptp(every) <= _CONSTANT * np.abs(every).max():
            continue
        title = _named(name)[0]
        x = places([logged, simulated], log=True, times=True)
        middle = [format_duration(float(np.median(values))) for values in (logged, simulated)]
        yield line_figure(
            _id(title),
            sentence(title),
            f"Median {middle[0]} in the log, {middle[1]} in the simulation.",
            Column("x", "time", "time", x),
            [
                Line(0, "logged", cumulative(logged, x)),
                Line(1, "simulated", cumulative(simulated, x)),
            ],
            log=True,
        )


def _bands(predictions: list[Prediction]) -> Iterator[Figure]:
    """Logged values of the rounds and their predicted bands."""
    for each in predictions:
        if len(each.logged) < 2:
            continue
        title, kind = _named(each.name)
        yield line_figure(
            _id(title),
            sentence(title),
            f"{format_share(each.coverage)} of {len(each.logged)} logged values lie within their band.",
            Column("x", "round after the fit", "count", np.arange(1.0, len(each.logged) + 1)),
            [
                Line(0, "logged", np.asarray(each.logged)),
                Line(
                    1,
                    "predicted, in its band",
                    np.asarray(each.middle),
                    band={
                        "5% quantile": np.asarray(each.low),
                        "95% quantile": np.asarray(each.high),
                    },
                ),
            ],
            unit=title,
            kind=kind,
        )


def _named(quantity: str) -> tuple[str, Kind]:
    """The name of a quantity without its unit, and how its values are written."""
    name = quantity.removesuffix(" (s)")
    return name, "number" if name == quantity else "time"


def _id(title: str) -> str:
    return title.lower().replace(" ", "-")


def _quantiles(calibration: Calibration) -> Figure:
    rows = [
        (sentence(_named(name)[0]), source, *np.quantile(values, QUANTILES))
        for name, pair in calibration.distributions.items()
        for source, values in zip(("logged", "simulated"), pair, strict=True)
    ]
    shares: dict[str, Kind] = {format_level(share, "share"): "time" for share in QUANTILES}
    return _table("quantiles", "Quantiles", rows, {"Quantity": "text", "Source": "text", **shares})


def _coverage(predictions: list[Prediction]) -> Figure:
    rows = []
    for each in predictions:
        title, kind = _named(each.name)
        written = format_roughly if kind == "number" else format_duration
        low, mean, high = (float(np.mean(values)) for values in (each.low, each.logged, each.high))
        band = format_interval(low, high, written)
        rows.append((sentence(title), len(each.logged), written(mean), band, each.coverage))
    return _table(
        "coverage",
        "Coverage",
        rows,
        {
            "Quantity": "text",
            "Values": "count",
            "Mean in the log": "text",
            "Mean predicted band": "text",
            "Coverage": "share",
        },
    )


def _devices(calibration: Calibration) -> Figure:
    estimates = calibration.estimates
    count = len(estimates.clients)
    title = "Estimates by device"
    if count > _DEVICES:
        title = f"The {_DEVICES} of {format_count(count)} devices with the most dispatches; the bundle contains all"
    latency = ", ".join(filter(None, ["One-way latency", _LATENCY_FROM[estimates.latency_from]]))
    columns = [
        (_seconds, estimates.step_s.mean, estimates.step_s.mean * estimates.step_s.error),
        *((_rate, rate.mean, rate.mean * rate.error) for rate in estimates.rates_bps),
        (_seconds, estimates.latency_s, estimates.latency_errors),
    ]
    rows = [
        (
            estimates.clients[row],
            estimates.dispatches[row],
            *(text(values[row], errors[row]) for text, values, errors in columns),
        )
        for row in sorted(np.argsort(-estimates.dispatches, kind="stable")[:_DEVICES])
    ]
    texts = "Step time", "Rate down", "Rate up", latency
    named: dict[str, Kind] = {
        "Device": "text",
        "Dispatches": "count",
        **dict.fromkeys(texts, "text"),
    }
    return _table("devices", title, rows, named)


def _lateness(late: Lateness) -> Figure:
    """The share of late dispatches by their predicted probability of being late."""
    limits = [format_level(edge, "share") for edge in _PROBABILITIES]
    group = np.searchsorted(_PROBABILITIES[1:-1], late.probability, "right")
    rows = []
    for row in np.unique(group).tolist():
        of = group == row
        shares = (float(each[of].mean()) for each in (late.probability, late.late))
        rows.append((f"{limits[row]} to {limits[row + 1]}", int(of.sum()), *shares))
    return _table(
        "lateness",
        "Predicted and actual lateness",
        rows,
        {
            "Predicted probability": "text",
            "Dispatches": "count",
            "Mean predicted": "share",
            "Late in the log": "share",
        },
    )


def _table(
    id_: str, finding: str, rows: Sequence[tuple[Any, ...]], kinds: Mapping[str, Kind]
) -> Figure:
    """A figure with these rows; ``kinds`` says how the values of each column are written."""
    columns = [
        Column(_id(label), label, kind, [row[number] for row in rows])
        for number, (label, kind) in enumerate(kinds.items())
    ]
    return Figure(id_, finding, tuple(columns))


def _with_error(value: float, unit: str, error: float) -> str:
    """A value with its relative standard error (NaN: unknown), unless that is 0: the value is given or unknown.

    It has one digit more than the error leaves certain, and at least two.
    """
    if math.isnan(value):
        return ABSENT
    certain = -math.log10(error / value) if value and error > 0 else 3.0
    digits = min(max(1 + math.ceil(certain), 2), 4)
    written = f"{format_number(float(f'{value:.{digits}g}'))}{unit}"
    if not value or not error:
        return written
    if math.isnan(error):
        return f"{written}, error unknown"
    if error > value:
        return f"{written}, undetermined: its error is larger"
    exact = error / value < _EXACT
    return f"{written}, exact" if exact else f"{written} ± {format_roughly(100 * error / value)}%"


def _seconds(value: float, error: float) -> str:
    return _with_error(value, " s", error)


def _rate(value: float, error: float) -> str:
    return _with_error(value / 1e6, " Mbit/s", error / 1e6)


def _variation(of: Varying) -> str:
    """A coefficient of variation with its error; 0% if it is rounding."""
    if not of.shows_spread:
        return _LATENCY_FROM["nothing"]
    if of.cv < _EXACT:
        return format_share(0.0)
    return _with_error(100 * of.cv, "%", 100 * of.cv * of.cv_error)
