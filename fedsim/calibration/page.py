"""The page of a calibration: what was estimated, what the log cannot say, and how well it predicts the log."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsim.analysis.figures.base import Column, Figure, sentence
from fedsim.analysis.figures.lines import Line, Panel, cumulative, line_figure, places
from fedsim.analysis.headline import Tile
from fedsim.analysis.pages import embedded, environment, write_page
from fedsim.calibration.calibrating import QUANTILES, Calibration
from fedsim.calibration.prediction import Prediction
from fedsim.calibration.transfers import describe
from fedsim.formatting import (
    ABSENT,
    Kind,
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_share,
    format_value,
)

_DEVICES = 200
"""Devices that the page lists."""
_EXACT = 1e-4
"""A relative error below it is written as exact."""
_CONSTANT = 1e-6
"""Samples whose relative spread is below it have one value: their distribution functions would show rounding."""


def write_calibration_page(calibration: Calibration, path: Path) -> None:
    """Write the page.

    Raises:
        UserError: another file is there, or it cannot be written.
    """
    compared = [line_figure(panel) for panel in _distributions(calibration)]
    predicted = [line_figure(panel) for panel in _bands(calibration.predictions)]
    tables = [_quantiles(calibration), _coverage(calibration.predictions), _devices(calibration)]
    figures = {figure.id: figure for figure in (*compared, *predicted, *tables)}
    page = (
        environment()
        .get_template("calibration.html.j2")
        .render(
            title="Calibration",
            tiles=[
                Tile(sentence(name), *re.split(r", (?=varies)", value))
                for name, value in summary(calibration)
            ],
            flags=calibration.flags,
            compared=compared,
            predicted=predicted,
            figures=figures,
            has_scenario=bool(calibration.distributions),
            data=embedded({name: figure.document() for name, figure in figures.items()}),
        )
    )
    write_page(path, page)


def summary(calibration: Calibration) -> list[tuple[str, str]]:
    """The main numbers: name and value."""
    estimates = calibration.estimates
    rows = [
        ("devices", format_count(len(estimates.clients))),
        ("completed dispatches", format_count(float(estimates.dispatches.sum()))),
        ("median step time", f"{format_number(float(np.median(estimates.step_s)))} s"),
        ("variation of a dispatch's step time", _share(estimates.jitter_cv)),
    ]
    if estimates.knows_links:
        for way, rates, cv in zip(
            ("down", "up"), estimates.rates_bps, estimates.rate_cv, strict=True
        ):
            rows.append(
                (
                    f"median rate {way}",
                    f"{_rate(float(np.median(rates)))}, varies by {_share(cv)}",
                )
            )
        rows.append(
            ("median one-way latency", f"{format_number(float(np.median(estimates.latency_s)))} s")
        )
        rows.append(("transport", describe(estimates.transport)))
    return rows


def _distributions(calibration: Calibration) -> Iterator[Panel]:
    """Logged and simulated distribution functions of the quantities that are not constant."""
    for name, pair in calibration.distributions.items():
        logged, simulated = map(np.asarray, pair)
        every = np.concatenate([logged, simulated])
        if np.ptp(every) <= _CONSTANT * np.abs(every).max():
            continue
        title = sentence(name.removesuffix(" (s)"))
        x = places([logged, simulated], log=True, times=True)
        middle = [format_duration(float(np.median(values))) for values in (logged, simulated)]
        yield Panel(
            title.lower().replace(" ", "-"),
            title,
            f"Median {middle[0]} in the log, {middle[1]} in the simulation.",
            x,
            "time",
            "time",
            [
                Line(0, "logged", cumulative(logged, x)),
                Line(1, "simulated", cumulative(simulated, x)),
            ],
            log=True,
        )


def _bands(predictions: list[Prediction]) -> Iterator[Panel]:
    """Logged values of the rounds and their predicted bands."""
    for each in predictions:
        if len(each.logged) < 2:
            continue
        title, kind = _named(each)
        yield Panel(
            title.lower().replace(" ", "-"),
            sentence(title),
            f"{format_share(each.coverage)} of {len(each.logged)} logged values lie within their band.",
            np.arange(1.0, len(each.logged) + 1),
            "round after the fit",
            "count",
            [
                Line(0, "logged", np.asarray(each.logged)),
                Line(1, "predicted", np.asarray(each.middle)),
                Line(1, "5% quantile", np.asarray(each.low), thin=True),
                Line(1, "95% quantile", np.asarray(each.high), thin=True),
            ],
            unit=title,
            values=kind,
        )


def _named(prediction: Prediction) -> tuple[str, Kind]:
    name = prediction.name.removesuffix(" (s)")
    return name, "number" if name == prediction.name else "time"


def _quantiles(calibration: Calibration) -> Figure:
    rows = [
        (sentence(name.removesuffix(" (s)")), source, np.quantile(values, QUANTILES))
        for name, pair in calibration.distributions.items()
        for source, values in zip(("logged", "simulated"), pair, strict=True)
    ]
    columns = [
        Column("quantity", "", "text", [row[0] for row in rows]),
        Column("source", "", "text", [row[1] for row in rows]),
    ]
    columns += [
        Column(f"{share:.0%}", f"{share:.0%}", "time", [row[2][place] for row in rows])
        for place, share in enumerate(QUANTILES)
    ]
    return Figure("quantiles", "Quantiles", tuple(columns))


def _coverage(predictions: list[Prediction]) -> Figure:
    named = [_named(each) for each in predictions]

    def written(each: Prediction, kind: Kind) -> str:
        low, high = float(np.mean(each.low)), float(np.mean(each.high))
        return format_interval(low, high, lambda value: format_value(value, kind))

    return Figure(
        "coverage",
        "Coverage",
        (
            Column("quantity", "Quantity", "text", [sentence(name) for name, _ in named]),
            Column("values", "Values", "count", [len(each.logged) for each in predictions]),
            Column(
                "logged",
                "Mean in the log",
                "text",
                [
                    format_value(float(np.mean(each.logged)), kind)
                    for each, (_, kind) in zip(predictions, named, strict=True)
                ],
            ),
            Column(
                "band",
                "Mean predicted band",
                "text",
                [written(each, kind) for each, (_, kind) in zip(predictions, named, strict=True)],
            ),
            Column("coverage", "Coverage", "share", [each.coverage for each in predictions]),
        ),
    )


def _devices(calibration: Calibration) -> Figure:
    """The devices with the most dispatches."""
    estimates = calibration.estimates
    count = len(estimates.clients)
    shown = sorted(np.argsort(-estimates.dispatches, kind="stable")[:_DEVICES])
    title = (
        "Estimates by device"
        if count <= _DEVICES
        else f"The {_DEVICES} of {format_count(count)} devices with the most dispatches; the bundle holds all"
    )
    down, up = estimates.rates_bps
    return Figure(
        "devices",
        title,
        (
            Column("device", "Device", "text", [estimates.clients[row] for row in shown]),
            Column(
                "dispatches", "Dispatches", "count", [estimates.dispatches[row] for row in shown]
            ),
            Column(
                "step",
                "Step time",
                "text",
                [_with_error(estimates.step_s[row], estimates.step_error[row]) for row in shown],
            ),
            Column("down", "Rate down", "text", [_rate(down[row]) for row in shown]),
            Column("up", "Rate up", "text", [_rate(up[row]) for row in shown]),
        ),
    )


def _with_error(value: float, error: float) -> str:
    return f"{format_number(value)} s" + (
        f" ± {format_share(error)}" if error >= _EXACT else ", exact"
    )


def _rate(value: float) -> str:
    return ABSENT if math.isnan(value) else f"{format_number(value / 1e6)} Mbit/s"


def _share(share: float) -> str:
    """A share in percent, 0% if it is rounding."""
    return format_share(0.0 if share < _EXACT else share)
