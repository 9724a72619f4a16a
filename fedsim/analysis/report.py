"""The report page of a run: one self-contained HTML file that needs no network."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from fedsim.analysis import text
from fedsim.analysis.figures import Figure, learning, participation, time, timeline
from fedsim.analysis.headline import headline, notice, subtitle, tiles
from fedsim.errors import UserError
from fedsim.runs import Run
from fedsim.runs.folder import write_atomically

TEMPLATES = Path(__file__).with_name("templates")


def figures(run: Run) -> dict[str, Figure]:
    """The figures of a run's page that it has data for, in reading order, by their ids."""
    found = (
        learning.learning(run),
        learning.time_to_targets(run),
        time.time_spent(run),
        time.work(run),
        time.outcomes(run),
        time.online(run),
        timeline.timeline(run),
        participation.participation(run),
        participation.inequality(run),
        learning.client_accuracy(run),
        participation.staleness(run),
        participation.age(run),
        participation.delay(run),
        participation.regularity(run),
        participation.partition(run),
    )
    return {figure.id: figure for figure in found if figure is not None}


def render(run: Run) -> str:
    """The page as text.

    Raises:
        UserError: the run folder is damaged.
    """
    drawn = figures(run)
    data = {name: figure.document() for name, figure in drawn.items()}
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            title=run.name,
            headline=headline(run),
            subtitle=subtitle(run),
            notice=notice(run),
            tiles=tiles(run),
            figures=drawn,
            data=_embedded(data),
            scenario=run.folder.scenario.read_text(encoding="utf-8"),
            facts=_facts(run),
        )
    )


def write_report(run: Run, path: Path) -> None:
    """Write the page to ``path``.

    Raises:
        UserError: the run folder is damaged, or the page cannot be written.
    """
    page = render(run)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    except OSError as error:
        raise UserError(
            f"cannot write the page: {error.strerror}",
            where=str(path),
            hint="choose another place with -o",
        ) from error


def _embedded(data: dict[str, Any]) -> Markup:
    document = json.dumps(data, separators=(",", ":"), allow_nan=False)
    # Nothing in the data may end the script element or open a comment in it.
    return Markup(document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _facts(run: Run) -> list[tuple[str, str]]:
    """Entries of run.json as dotted names and values, without the tables' own figures."""
    rows: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                walk(f"{prefix}.{key}" if prefix else str(key), value[key])
        else:
            rows.append((prefix, value if isinstance(value, str) else json.dumps(value)))

    walk("", run.info)
    return rows


def cell_of(value: Any, kind: str) -> str:
    """A value of a figure's table as text; ``kind`` is its column's."""
    if isinstance(value, str):
        return value
    number = float(value)
    if number != number:
        return "–"
    match kind:
        case "time":
            return text.duration_text(number)
        case "share":
            return text.percent_text(number)
        case "count":
            return text.count_text(number)
        case "bytes":
            return text.prefixed_text(number, "B")
        case "energy":
            return text.prefixed_text(number, "J")
        case _:
            return f"{number:.4g}"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell_of"] = cell_of
    environment.globals["zip"] = zip

    def inlined(name: str) -> Markup:
        return Markup((TEMPLATES / name).read_text(encoding="utf-8"))

    environment.globals["inlined"] = inlined
    return environment
