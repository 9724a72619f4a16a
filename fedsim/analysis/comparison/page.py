"""The comparison page: one self-contained HTML file that needs no network."""

from __future__ import annotations

from fedsim.analysis.comparison import figures
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.findings import curves_document
from fedsim.analysis.comparison.headline import headline, tiles
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.figures.base import Figure, plain
from fedsim.analysis.pages import embedded, environment
from fedsim.formatting import format_names

_NAMED = 3
"""The most variants that the page's title names."""


def page_figures(comparison: ComparisonTables) -> dict[str, Figure]:
    """The figures for which there is data, by id."""
    tables = comparison.reference.tables if comparison.reference is not None else []
    every = (
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
        figures.time_spent(comparison),
        figures.work(comparison),
        figures.participation(comparison),
        figures.lorenz(comparison),
        figures.fairness(comparison),
        figures.client_accuracy(comparison),
        figures.differences(comparison),
        figures.runs(comparison),
    )
    return {figure.id: figure for figure in every if figure is not None}


def render(comparison: ComparisonTables) -> str:
    """The page as HTML text."""
    drawn = page_figures(comparison)
    settings = comparison.grouping.settings
    groups = [
        {**group.names, "place": place}
        for setting in settings
        for place, group in enumerate(comparison.grouping.of(setting))
    ]
    targets = [{"metric": goal.metric, "value": goal.value} for goal in comparison.goals]
    data = {
        **{name: figure.document() for name, figure in drawn.items()},
        "comparison": {"groups": groups, "settings": settings, "targets": targets},
        "charts": plain(curves_document(comparison)),
    }
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            title=title([group.label for group in comparison.groups]),
            headline=headline(comparison),
            tiles=tiles(comparison),
            cautions=cautions(comparison),
            alike=[f"{first.name} and {second.name}" for first, second in comparison.alike],
            baseline=comparison.baseline,
            settings=settings,
            figures=drawn,
            targets=[figure for name, figure in drawn.items() if name.startswith("target-")],
            references=[figure for name, figure in drawn.items() if name.startswith("reference-")],
            data=embedded(data),
        )
    )


def title(labels: list[str]) -> str:
    """The page's title: the variants, or how many there are."""
    names = list(dict.fromkeys(labels))
    return f"{len(names)} variants compared" if len(names) > _NAMED else format_names(names)
