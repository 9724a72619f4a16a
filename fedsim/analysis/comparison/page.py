"""The comparison page: one self-contained HTML file that needs no network."""

from __future__ import annotations

import math
from typing import Any

from fedsim.analysis.comparison import figures
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.figure import FigureStyle
from fedsim.analysis.comparison.findings import curves_document
from fedsim.analysis.comparison.headline import explanations, other_targets, statement, tiles
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.figures.base import Figure, plain, sentence
from fedsim.analysis.pages import embedded, environment
from fedsim.analysis.palette import LOOKS, looks
from fedsim.vocabulary.formatting import format_names

_NAMED = 3
"""Maximum number of variants that the page's title names."""


def page_figures(comparison: ComparisonTables) -> dict[str, Figure]:
    """The figures for which there is data, by id."""
    tables = comparison.reference.tables if comparison.reference is not None else []
    every = (
        figures.learning(comparison),
        figures.quality(comparison),
        *(
            figures.target_figure(comparison, target, number, explanations(comparison, target))
            for number, target in enumerate(comparison.goals)
        ),
        *(
            figures.reference_figure(comparison, table, number)
            for number, table in enumerate(tables)
        ),
        figures.pairs(comparison),
        figures.time_spent(comparison),
        figures.durations(comparison),
        figures.work(comparison),
        figures.participation(comparison),
        figures.lorenz(comparison),
        figures.fairness(comparison),
        figures.client_accuracy(comparison),
        figures.differences(comparison),
        figures.runs(comparison),
    )
    return {figure.id: figure for figure in every if figure is not None}


def render(comparison: ComparisonTables, style: FigureStyle | None = None) -> str:
    """The page as HTML text.

    Args:
        comparison: the runs.
        style: initial view of the page's main chart.
    """
    drawn = page_figures(comparison)
    settings = comparison.grouping.settings
    variants = looks(group.label for group in comparison.groups)
    places = {label: index for index, label in enumerate(variants)}
    groups = [{**group.names, "place": places[group.label]} for group in comparison.groups]
    targets = [{"metric": goal.metric, "value": goal.value} for goal in comparison.goals]
    curves = plain(curves_document(comparison))
    data = {
        **{name: figure.document() for name, figure in drawn.items()},
        "comparison": {
            "groups": groups,
            "settings": settings,
            "targets": targets,
            "looks": [
                {"color": f"g{index % len(LOOKS)}", "dash": look.dash, "symbol": look.symbol}
                for index, look in enumerate(variants.values())
            ],
            "view": plain(_view(comparison, style or FigureStyle())),
        },
        "charts": curves,
    }
    head = statement(comparison)
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            title=title([group.label for group in comparison.groups]),
            headline=head.main,
            qualifiers=[
                *(f"{sentence(clause)}." for clause in head.qualifiers),
                *head.sentences,
            ],
            others=other_targets(comparison),
            tiles=tiles(comparison),
            cautions=cautions(comparison),
            alike=comparison.alike,
            settings=settings,
            points=round(curves["points"], -2),
            figures=drawn,
            keys_shown=figures.KEYS_SHOWN,
            targets=[figure for name, figure in drawn.items() if name.startswith("target-")],
            references=[figure for name, figure in drawn.items() if name.startswith("reference-")],
            data=embedded(data),
        )
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
        "xscale": "log" if style.log in ("x", "xy") else None,
        "bands": style.bands,
        **{name: ends if any(map(math.isfinite, ends)) else None for name, ends in ranges.items()},
    }


def title(labels: list[str]) -> str:
    """The page's title: the variants, or their number."""
    names = list(dict.fromkeys(labels))
    return f"{len(names)} variants compared" if len(names) > _NAMED else format_names(names)
