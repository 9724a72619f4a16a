"""The report page of a run: one self-contained HTML file that needs no network."""

from __future__ import annotations

import json

from fedsim.analysis.figures import learning, participation, time, timeline
from fedsim.analysis.figures.base import Figure
from fedsim.analysis.headline import explanation, headline, notice, subtitle, tiles
from fedsim.analysis.pages import rendered
from fedsim.runs import Run
from fedsim.scenario.comparing import flattened


def figures(run: Run) -> dict[str, Figure]:
    """The figures for which the run has data, by id, in the order of the page."""
    every = (
        learning.learning(run),
        learning.time_to_targets(run),
        learning.by_class(run),
        learning.drop(run),
        time.waiting(run),
        time.time_spent(run),
        time.durations(run),
        time.work(run),
        time.vectors(run),
        time.outcomes(run),
        time.online(run),
        timeline.timeline(run),
        participation.parts(run),
        participation.contribution(run),
        participation.participation(run),
        learning.client_accuracy(run),
        learning.client_mae(run),
        participation.staleness(run),
        participation.age(run),
        participation.delay(run),
        participation.regularity(run),
        participation.partition(run),
    )
    return {figure.id: figure for figure in every if figure is not None}


def render(run: Run) -> str:
    """The page as HTML text."""
    drawn = figures(run)
    return rendered(
        "report.html.j2",
        drawn,
        run=run,
        title=run.name,
        headline=headline(run),
        explanation=explanation(run, drawn.get("waiting")),
        subtitle=subtitle(run),
        notice=notice(run),
        tiles=tiles(run),
        scenario=run.scenario_text,
        facts=[
            (name, value if isinstance(value, str) else json.dumps(value))
            for name, value in sorted(flattened(run.info))
        ],
    )
