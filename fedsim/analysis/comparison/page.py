"""The comparison page: one self-contained HTML file that needs no network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedsim.analysis.comparison import figures
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.curves import RUNS_UP_TO
from fedsim.analysis.comparison.facts import COSTS
from fedsim.analysis.comparison.figure import FigureStyle
from fedsim.analysis.comparison.headline import headline, other_targets, tiles
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.figures.base import Figure, plain, shortened
from fedsim.analysis.pages import rendered
from fedsim.analysis.palette import LOOKS, looks
from fedsim.vocabulary.formatting import NAMED, format_names


def page_figures(comparison: ComparisonTables) -> dict[str, Figure]:
    """The figures for which there is data, by id."""
    tables = comparison.reference.tables if comparison.reference is not None else []
    every = (
        figures.first_to(comparison),
        figures.learning(comparison),
        figures.quality(comparison),
        *(
            figures.target_figure(comparison, target, number)
            for number, target in enumerate(comparison.goals)
        ),
        *(
            figures.reference_figure(comparison, table, number)
            for number, table in enumerate(tables)
        ),
        figures.pairs(comparison),
        figures.precision(comparison),
        figures.time_spent(comparison),
        *figures.summaries(comparison),
        figures.lorenz(comparison),
        figures.client_accuracy(comparison),
        figures.differences(comparison),
        figures.runs(comparison),
    )
    return {figure.id: figure for figure in every if figure is not None}


def render(comparison: ComparisonTables, style: FigureStyle | None = None) -> str:
    """The page as HTML text; the style is the initial view of its main chart."""
    drawn = page_figures(comparison)
    settings = comparison.grouping.settings
    variants = looks(comparison.shown.values())
    places = {label: index for index, label in enumerate(variants)}
    groups = [
        {"setting": setting, "label": label, "place": places[label]}
        for (setting, _), label in comparison.shown.items()
    ]
    targets = [{"metric": goal.metric, "value": goal.value} for goal in comparison.goals]
    charts = plain(curves_document(comparison))
    data = {
        "comparison": {
            "groups": groups,
            "settings": settings,
            "targets": targets,
            "runs_up_to": RUNS_UP_TO,
            "looks": [
                {"color": f"g{index % len(LOOKS)}", "dash": look.dash, "symbol": look.symbol}
                for index, look in enumerate(variants.values())
            ],
            "view": plain(_view(comparison, style or FigureStyle())),
        },
        "charts": charts,
    }
    first, *more = headline(comparison)
    return rendered(
        "compare.html.j2",
        drawn,
        data=data,
        title=title([*comparison.shown.values()]),
        headline=first.removesuffix("."),
        qualifiers=more,
        others=other_targets(comparison),
        tiles=tiles(comparison),
        cautions=cautions(comparison),
        alike=comparison.alike,
        settings=settings,
        points=round(charts["points"], -1),
        has_runs=charts["has_runs"],
        stopped=comparison.is_stopped,
        keys_shown=figures.KEYS_SHOWN,
        targets=[figure for name, figure in drawn.items() if name.startswith("target-")],
        references=[figure for name, figure in drawn.items() if name.startswith("reference-")],
    )


def _view(comparison: ComparisonTables, style: FigureStyle) -> dict[str, Any]:
    """The initial view of the main chart, for the page."""
    if not comparison.metrics:
        return {}
    metric = style.metrics[0] if style.metrics else comparison.metrics[0]
    kind = comparison.definition(metric).unit
    ranges = {"xlim": style.x_limits(), "ylim": style.y_limits(metric, kind)}
    # An end that follows from the data is infinite, and null on the page.
    return {
        "metric": metric,
        "against": style.against,
        "scale": {"y": "log", "xy": "log", "logit": "logit"}.get(style.log or ""),
        "xscale": "log" if style.has_log_x(comparison) else None,
        "bands": style.bands,
        **{name: ends if any(map(math.isfinite, ends)) else None for name, ends in ranges.items()},
    }


def title(labels: list[str]) -> str:
    """The page's title: the variants, or their number."""
    names = list(dict.fromkeys(labels))
    return f"{len(names)} variants compared" if len(names) > NAMED else format_names(names)


_LEAST_POINTS, _MOST_NUMBERS = 40, 100_000
"""Minimum number of points per curve, and maximum count of numbers in all curves of a page, which keeps its data below
one megabyte."""


def curves_document(comparison: ComparisonTables) -> dict[str, Any]:
    """Every metric against every cost, for the chart of curves.

    ``metrics`` and ``against`` list key, label and kind, metrics also whether ``higher`` is better; ``series`` holds
    by metric, cost and setting the grid ``x`` and per group ``median``; of several runs ``low``, ``high`` and, if it
    ``has_runs`` because there are not too many, ``runs``; ``points`` is the approximate maximum number of points per
    curve, smaller if there are many curves.
    """
    views = max(1, len(comparison.metrics) * len(comparison.costs))
    lists = [4 + len(group.runs) if len(group.runs) > 1 else 2 for group in comparison.groups]
    has_runs = sum(lists) * views * _LEAST_POINTS <= _MOST_NUMBERS
    count = sum(lists) if has_runs else 4 * len(lists)
    limit = max(_LEAST_POINTS, min(400, _MOST_NUMBERS // (count * views)))

    def drawn(metric: str, cost: str) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for group, x, curve in comparison.series(metric, cost, limit):
            if (group.setting, group.label) not in comparison.shown:
                continue
            of_setting = settings.setdefault(group.setting, {"x": shortened(x, 7), "groups": []})
            known = {
                name: y for name, y in curve.items() if name == "median" or np.isfinite(y).any()
            }
            if len(group.runs) == 1 or not has_runs:
                known.pop("runs", None)
            of_setting["groups"].append({name: shortened(y, 5) for name, y in known.items()})
        return settings

    metrics = map(comparison.definition, comparison.metrics)
    return {
        "points": limit,
        "has_runs": has_runs,
        "metrics": [
            {"key": m.name, "label": m.label, "kind": m.unit, "higher": m.higher_is_better}
            for m in metrics
        ],
        "against": [
            {"key": name, "label": COSTS[name][0], "kind": COSTS[name][1]}
            for name in comparison.costs
        ],
        "series": {
            metric: {cost: drawn(metric, cost) for cost in comparison.costs}
            for metric in comparison.metrics
        },
    }
