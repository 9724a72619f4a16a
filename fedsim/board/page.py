"""The board as a page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.pages import rendered, write_page
from fedsim.board.results import Ratio, Standing, Table, verdict, why
from fedsim.board.suite import BASELINE, MEASURED, Cell, Suite
from fedsim.bundled import located
from fedsim.vocabulary.formatting import (
    NAMED,
    Kind,
    format_counted,
    format_interval,
    format_names,
    format_roughly,
    format_times,
    format_value,
)

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
            multiple(standing),
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


def multiple(standing: Standing) -> str:
    """The time of an entry as a multiple of FedAvg's: ``0.50``, or ``rarely`` or ``never`` at the target."""
    if standing.ratio is None:
        return "rarely" if standing.reached else "never"
    return f"{standing.ratio.value:.2f}"


def disturbances(table: Table) -> Iterator[list[str]]:
    """By entry, the factor on its time with each disturbance, as text."""
    for standing in table.standings:
        if standing.ratio is not None and standing.disturbed:
            factors = standing.disturbed.values()
            written = ("missed" if math.isnan(factor) else f"{factor:.2f}" for factor in factors)
            yield [standing.entry, *written]


def repeat(suite: Suite, cell: Cell) -> str:
    """The command that repeats a run."""
    options = [
        f"-s {shlex.quote(f'{path}={_yaml(value)}')}" for path, value in suite.values(cell).items()
    ]
    file, built_in = suite.scenarios[cell.scenario].file, located("scenarios")
    if file.is_relative_to(built_in):
        file = file.relative_to(built_in).with_suffix("")
    return f"fedsim run {file} {' '.join(options)}"


def _repeated(table: Table, suite: Suite) -> str:
    """The command that repeats a run of the fastest entry; empty if its settings are not known."""
    fastest, setting = table.fastest, table.fastest.medians.get("setting")
    if fastest.entry not in suite.entries or setting is None:
        return ""
    name, seed = table.question.name, suite.seeds[0]
    return repeat(suite, Cell(name, fastest.entry, MEASURED, int(setting), seed))


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value)


def write(folder: Path, tables: Sequence[Table], suite: Suite, marked: str) -> Path:
    """Write ``board.html`` into a folder; ``marked`` is the entry of the user."""

    def takes_part(table: Table) -> bool:
        return marked in {standing.entry for standing in table.standings} | table.refused.keys()

    page = rendered(
        "board.html.j2",
        {},
        title=f"The board, {suite.version}",
        columns=COLUMNS,
        tables=[
            (
                table,
                list(cells(table)),
                why(table),
                _repeated(table, suite),
                [verdict(table, marked)] if marked != BASELINE and takes_part(table) else [],
                list(disturbances(table)),
            )
            for table in tables
        ],
        headline=headline(tables, marked),
        map=grid(tables),
        shown={
            (table.question.name, each.entry): (shade(each), multiple(each))
            for table in tables
            for each in table.standings
        },
        is_ranked=_is_ranked,
        marked=marked,
    )
    path = folder / "board.html"
    write_page(path, page)
    return path


def shade(standing: Standing) -> str:
    """The class of an entry's cell: ``same`` within 10% of FedAvg's time, or if the seeds do not separate the two."""
    ratio = standing.ratio
    if ratio is None:
        return "slow"
    if ratio.low <= 1 <= ratio.high:
        return "same"
    return "fast" if ratio.value < 0.9 else "slow" if ratio.value > 1.1 else "same"


def headline(tables: Sequence[Table], marked: str) -> list[str]:
    """Which entry ranks first, or the entries that the scenarios do not separate from it; how much faster it is than
    FedAvg; and, if the user has an entry, in how many scenarios theirs is faster."""
    rows = grid(tables)
    name, ratios = rows[0]
    tied = [each for each, own in rows if _is_ranked(own) and not _is_slower(own, ratios)]
    mean = Ratio.of(_limited(ratios), pd.Series([1.0] * len(ratios)))
    known = [ratio for ratio in ratios if ratio is not None]
    where = f"on average over {format_counted(len(known), 'scenario')}"
    if math.isfinite(mean.high):
        ends = format_interval(1 / mean.high, 1 / mean.low, format_roughly)
        where += f" (95% interval {ends})"
    text = [f"{name} is {format_times(1 / mean.value, 'fast')} as {BASELINE} {where}"]
    if name == BASELINE:
        text = [f"No entry is faster than {BASELINE} on average"]
    elif math.isinf(mean.high):
        text.insert(0, "Too few scenarios to name a first")
    elif len(tied) > 1:
        text.insert(0, f"No clear first among {format_names(tied, NAMED)}")
    else:
        text.insert(0, f"{name} ranks first")
    own = [ratio for ratio in dict(rows).get(marked, []) if ratio is not None]
    if marked not in (BASELINE, name) and own:
        faster = sum(ratio < 1 for ratio in own)
        text.append(
            f"{marked} is faster than {BASELINE} in {faster} of its {format_counted(len(own), 'scenario')}"
        )
    return text


def grid(tables: Sequence[Table]) -> list[tuple[str, list[float | None]]]:
    """The map: by entry, its ratio in every scenario; infinite if it misses the target, None if it does not take part.

    Entries are in the order of their mean logarithm, where a missed target counts as ten times as long; those that take
    part in fewer than half of the scenarios are last: too few to be ranked.
    """
    names = dict.fromkeys(standing.entry for table in tables for standing in table.standings)
    ratios: dict[str, list[float | None]] = {name: [] for name in names}
    for table in tables:
        here = {standing.entry: standing for standing in table.standings}
        for name in names:
            standing = here.get(name)
            ratio = None if standing is None else standing.ratio
            ratios[name].append(None if standing is None else ratio.value if ratio else math.inf)

    def rank(name: str) -> tuple[bool, float]:
        return not _is_ranked(ratios[name]), _mean(ratios[name])

    return [(name, ratios[name]) for name in sorted(names, key=rank)]


def _is_ranked(ratios: Sequence[float | None]) -> bool:
    """Whether an entry takes part in at least half of the scenarios."""
    return 2 * sum(ratio is not None for ratio in ratios) >= len(ratios)


def _is_slower(ratios: Sequence[float | None], first: Sequence[float | None]) -> bool:
    """Whether the 95% interval of an entry's ratio to the first, over the scenarios of both, is above 1."""
    own, best = _limited(ratios), _limited(first)
    return not (own / best).dropna().empty and Ratio.of(own, best).low > 1


def _limited(ratios: Sequence[float | None]) -> pd.Series[float]:
    """The ratios of an entry by scenario, in which a missed target counts as ten times as long."""
    return pd.Series([math.nan if ratio is None else min(ratio, 10.0) for ratio in ratios])


def _mean(ratios: Sequence[float | None]) -> float:
    """The geometric mean of the ratios of an entry."""
    return math.exp(np.log(_limited(ratios)).mean())
