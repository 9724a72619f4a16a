"""The comparison page: one self-contained HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.analysis.comparison import figures
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.comparison import Comparison
from fedsim.analysis.figures.base import Figure
from fedsim.analysis.pages import embedded, environment
from fedsim.analysis.text import listed_text

_NAMED = 3
"""Variants that the page's title names."""


def page_figures(comparison: Comparison) -> dict[str, Figure]:
    """The figures that there is data for, by their ids."""
    reference = comparison.reference
    tables = reference.tables if reference is not None else []
    found = (
        figures.learning(comparison),
        figures.quality(comparison),
        *(
            figures.target_figure(comparison, target, number)
            for number, target in enumerate(comparison.goals)
        ),
        *(
            figures.reference_figure(comparison, table, number)
            for number, table in enumerate(tables)
            if figures.was_run(comparison, table)
        ),
        figures.pairs(comparison),
        figures.time_spent(comparison),
        figures.work(comparison),
        figures.participation(comparison),
        figures.lorenz(comparison),
        figures.fairness(comparison),
        figures.client_accuracy(comparison),
        figures.differences(comparison),
        figures.runs(comparison),
    )
    return {figure.id: figure for figure in found if figure is not None}


def render(comparison: Comparison) -> str:
    """The page as text."""
    drawn = page_figures(comparison)
    settings = comparison.grouping.settings
    places: dict[str, int] = {}
    groups = []
    for group in comparison.groups:
        place = places[group.setting] = places.get(group.setting, -1) + 1
        groups.append({"setting": group.setting, "label": group.label, "place": place})
    data = {name: figure.document() for name, figure in drawn.items()}
    # Figures write absent numbers as null; so does what the charts alone need.
    targets = [{"metric": goal.metric, "value": goal.value} for goal in comparison.goals]
    charts = Figure("charts", "", "", "", (), figures.curves_data(comparison)).document()
    data |= {
        "comparison": {"groups": groups, "settings": settings, "targets": targets},
        "charts": charts,
    }
    names = list(dict.fromkeys(group.label for group in comparison.groups))
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            title=_title(names),
            headline=figures.headline(comparison),
            tiles=figures.tiles(comparison),
            cautions=cautions(comparison),
            alike=figures.alike(comparison),
            settings=settings,
            figures=drawn,
            targets=[figure for name, figure in drawn.items() if name.startswith("target-")],
            references=[figure for name, figure in drawn.items() if name.startswith("reference-")],
            data=embedded(data),
        )
    )


def _title(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} variants compared"
    return listed_text(names)
