"""The board as a page: Markdown for the documentation, HTML for a user."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.analysis.pages import embedded, environment, write_page
from fedsim.board.results import Table, why
from fedsim.board.suite import MEASURED, Cell, Suite
from fedsim.bundled import located
from fedsim.vocabulary.formatting import Kind, format_value

COLUMNS = (
    "",
    "ratio to FedAvg",
    "95% interval",
    "time",
    "reached",
    "data moved",
    "energy",
    "contributed",
    "worst tenth",
    "at the time budget",
    "at the data budget",
)
"""Headings of the table of a scenario."""


def cells(table: Table) -> Iterator[list[str]]:
    """The rows of a scenario's table, fastest first; ``*`` marks those not worse than it."""
    unit: Kind = "share" if "accuracy" in table.question.target[0] else "number"
    for standing in table.standings:
        medians, ratio = standing.medians, standing.ratio

        def text(name: str, kind: Kind, of: dict[str, float] = medians) -> str:
            return "–" if math.isnan(of[name]) else format_value(of[name], kind)

        yield [
            standing.entry + (" *" if standing.not_worse else ""),
            f"{ratio.value:.2f}" if ratio else "never" if not standing.reached else "rarely",
            f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio and math.isfinite(ratio.high) else "–",
            format_value(standing.time_s, "time") if ratio else "–",
            f"{standing.reached} of {standing.runs}",
            text("bytes", "bytes"),
            text("energy_j", "energy"),
            text("contributed", "share"),
            text("worst_tenth", "share"),
            text("at_time_budget", unit),
            text("at_byte_budget", unit),
        ]


def disturbances(table: Table) -> Iterator[list[str]]:
    """By entry, the factor on its time with each disturbance, as text."""
    for standing in table.standings:
        if standing.ratio is not None:
            factors = standing.disturbed.values()
            yield [
                standing.entry,
                *("missed" if math.isnan(factor) else f"{factor:.2f}" for factor in factors),
            ]


def reversal(tables: Sequence[Table]) -> list[list[str]]:
    """Kendall's tau between hours and server updates in each scenario, as text."""
    return [
        [table.question.name, "–" if math.isnan(table.tau) else f"{table.tau:.2f}"]
        for table in tables
    ]


def repeat(suite: Suite, cell: Cell) -> str:
    """The command that repeats a run."""
    options = [
        f"-s {shlex.quote(f'{path}={_yaml(value)}')}" for path, value in suite.values(cell).items()
    ]
    file = suite.scenarios[cell.scenario].file.relative_to(located("scenarios"))
    return f"fedsim run {file.with_suffix('')} {' '.join(options)}"


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value)


def markdown(tables: Sequence[Table], suite: Suite) -> str:
    """The body of ``docs/board.md`` below its introduction: every scenario, in the order of the suite."""
    lines = []
    for table in tables:
        question = table.question
        metric, value = question.target
        budget = f"{format_value(question.budget_s, 'time')} and {format_value(question.budget_bytes, 'bytes')}"
        lines += [
            f"## {question.name.replace('_', ' ').capitalize()}",
            "",
            f"{question.text} Target: {metric} {value:g}; budgets: {budget}; "
            f"at most {format_value(question.horizon_s, 'time')}.",
            "",
            why(table),
            "",
            *_rows(COLUMNS, cells(table)),
            "",
        ]
        if question.disturbances:
            headings = ("factor on the time with", *question.disturbances)
            lines += [*_rows(headings, disturbances(table)), ""]
        if table.refused:
            lines += [f"Do not work here: {', '.join(table.refused)}.", ""]
        fastest = table.fastest
        setting = int(fastest.medians["setting"])
        cell = Cell(question.name, fastest.entry, MEASURED, setting, suite.seeds[0])
        lines += [f"Repeat a run of {fastest.entry}:", "", "```text"]
        lines += [repeat(suite, cell), "```", ""]
    return "\n".join(lines)


def _rows(headings: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|---|{'---:|' * (len(headings) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def write(folder: Path, tables: Sequence[Table], suite: Suite, marked: str) -> Path:
    """Write ``board.html`` into a folder; ``marked`` is the entry of the user."""
    page = (
        environment()
        .get_template("board.html.j2")
        .render(
            title=f"The board, {suite.version}",
            columns=COLUMNS,
            tables=[(table, list(cells(table)), why(table)) for table in tables],
            map=grid(tables),
            reversal=reversal(tables),
            marked=marked,
            data=embedded({}),
        )
    )
    path = folder / "board.html"
    write_page(path, page)
    return path


def grid(tables: Sequence[Table]) -> list[tuple[str, list[float | None]]]:
    """The map: by entry, its ratio in every scenario; infinite if it misses the target, None if it does not take part.

    Entries are in the order of their mean logarithm over the scenarios in which they reach the target.
    """
    names = dict.fromkeys(standing.entry for table in tables for standing in table.standings)
    ratios: dict[str, list[float | None]] = {name: [] for name in names}
    for table in tables:
        here = {standing.entry: standing for standing in table.standings}
        for name in names:
            standing = here.get(name)
            ratio = None if standing is None else standing.ratio
            ratios[name].append(None if standing is None else ratio.value if ratio else math.inf)

    def rank(name: str) -> float:
        known = [math.log(min(r, 10.0)) for r in ratios[name] if r is not None]
        return float(np.mean(known)) if known else math.inf

    return [(name, ratios[name]) for name in sorted(names, key=rank)]


def draw(tables: Sequence[Table], path: Path) -> None:
    """Draw the map as a picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = grid(tables)
    values = np.array([[math.nan if r is None else min(r, 8.0) for r in row] for _, row in rows])
    size = (1.2 + 0.75 * len(tables), 1.6 + 0.26 * len(rows))
    with mpl.rc_context({"svg.hashsalt": "board", "font.size": 8, "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.imshow(np.log2(values), cmap="RdBu_r", vmin=-2.5, vmax=2.5, aspect="auto")
        axes.set_xticks(range(len(tables)), [t.question.name.replace("_", "\n") for t in tables])
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.xaxis.tick_top()
        for (y, x), value in np.ndenumerate(values):
            ratio = rows[y][1][x]
            if ratio is not None:
                text = "never" if math.isinf(ratio) else f"{ratio:.2f}"
                dark = abs(math.log2(value)) > 1.5
                axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black")
        figure.savefig(path, metadata={"Date": None})
