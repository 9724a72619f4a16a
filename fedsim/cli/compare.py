"""``fedsim compare``: runs side by side."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import options
from fedsim.cli.progress import advancing
from fedsim.errors import UserError
from fedsim.files import terminal
from fedsim.vocabulary.formatting import format_count

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.analysis.comparison import Comparison

_COSTS = ("time_s", "version", "round", "bytes", "compute_s", "energy_j", "gco2e", "cost")
"""The horizontal axes; those of a figure, which are not imported for ``--help``."""


@click.command(name="compare")
@click.argument("runs", nargs=-1, required=True, type=options.path_type, metavar="RUN...")
@options.output_option(
    "Folder for the page, tables and figure; by default 'comparison' in the first RUN's folder, or beside it.",
    type=options.folder_type,
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="METRIC=VALUE",
    help="A target value, such as accuracy=0.9 or accuracy=90%; may be repeated. By default, the scenarios' targets.",
)
@click.option(
    "--baseline",
    metavar="LABEL",
    help="Reference variant for relative times, by its name (that of --labels, if given); the first by default.",
)
@click.option(
    "--settings",
    multiple=True,
    metavar="KEY",
    help="Key, such as server.selection.cohort or devices.network, whose values name settings instead of variants; "
    "variants are compared within each; may be repeated.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Metric of the figure; repeat the option for one panel per metric. The first metric by default.",
)
@click.option(
    "--against",
    metavar=f"[{'|'.join(_COSTS)}]",
    shell_complete=options.completing(lambda: _COSTS),
    default="time_s",
    help="Horizontal axis of the figure: simulated time, server updates, rounds, data moved, client compute time, "
    "energy, emissions or cost.",
)
@click.option(
    "--xlim",
    metavar="LOW:HIGH",
    help="Range of the horizontal axis, such as 0:2d; an end may be left out, such as :2d.",
)
@click.option(
    "--ylim",
    multiple=True,
    metavar="[METRIC=]LOW:HIGH",
    help="Range of the vertical axis: 85%:95% applies to the first metric; name another, such as "
    "loss=0:1; may be repeated. By default, the late part of the curves if the rest would compress it.",
)
@click.option(
    "--log",
    type=click.Choice(["x", "y", "xy", "logit"]),
    help="Logarithmic axes; logit spreads out shares near 0 and 1 on the vertical axis.",
)
@click.option(
    "--bands/--no-bands",
    default=None,
    help="Bands from the lowest to the highest run; by default, a thin line for each run of up to six variants.",
)
@click.option(
    "--bound",
    is_flag=True,
    help="Also draw, pale, the least time in which these devices can compute as many updates, at fixed speeds.",
)
@click.option(
    "--width",
    metavar="LENGTH|VENUE",
    help="Width of the figure: 84mm, 3.25in, or a venue's column and fonts: acm, iclr, icml, ieee, lncs, mlsys, "
    "nature, neurips, usenix; add -text, as in ieee-text, for the full text width.",
)
@click.option("--height", metavar="LENGTH", help="Height of the figure.")
@click.option(
    "--labels",
    multiple=True,
    metavar="OLD=NEW",
    help="A new name for a variant or a setting; write its full current name first: "
    "'fedavg, deadline=25s=FedAvg 25 s'; may be repeated.",
)
@options.json_option
def command(
    runs: tuple[Path, ...],
    output: Path | None,
    targets: tuple[str, ...],
    baseline: str | None,
    settings: tuple[str, ...],
    metrics: tuple[str, ...],
    labels: tuple[str, ...],
    as_json: bool,
    **style: Any,
) -> None:
    """Compare RUN... (runs, sweeps, folders of them, or logs of real runs) on one page.

    Runs that differ only in their seed form a group, named after the values that set its scenario apart. Writes a
    page that works offline, tables (CSV, Parquet, LaTeX) and a figure (PDF, SVG, PNG) into one folder. The page opens
    with the metric, axes and ranges of the figure.

    A log is a table as for 'fedsim calibrate', with the column 'round'. It shows durations, waiting, participation and,
    if it has their columns, local steps and bytes.
    """
    from fedsim.analysis.comparison import compare
    from fedsim.analysis.comparison.figure import FigureStyle

    given: contextlib.AbstractContextManager[Sequence[Any]] = contextlib.nullcontext(runs)
    if any(path.is_file() for path in runs):  # Logs need SciPy.
        from fedsim.calibration.logged_run import logs_as_runs

        given = logs_as_runs(runs)
    renamed = dict(_renaming(text) for text in labels)
    reading = advancing("reading runs", quiet=as_json)
    with given as folders, reading as on_progress, _named_as_options():
        figure = FigureStyle(metrics, **style)
        comparison = compare(
            folders,
            targets=targets,
            baseline=baseline,
            labels=renamed,
            settings=settings,
            on_progress=on_progress,
        )
        page = comparison.write(output if output is not None else _default(runs[0]), figure)
    if as_json:
        options.print_json(_document(comparison, page))
    else:
        _print(comparison, page)


@contextlib.contextmanager
def _named_as_options() -> Iterator[None]:
    """Name the options where a mistake is in an argument of the Python interface."""
    try:
        yield
    except UserError as error:
        names = {
            name: parameter.opts[0]
            for parameter in command.params
            for name in (parameter.name, parameter.opts[0].removeprefix("--"))
        }
        name, _, rest = (error.where or "").partition(" ")
        if name not in names:
            raise
        where = f"{names[name]} {rest}".rstrip()
        raise UserError(error.message, where=where, hint=error.hint) from error


def _renaming(text: str) -> tuple[str, str]:
    # A variant's name may hold "=", such as mu=0.1, and so may a formula in its new name.
    without_formulas = re.sub(r"\$[^$]*\$", lambda formula: "$" * len(formula[0]), text)
    at = without_formulas.rfind("=")
    old, new = text[:at], text[at + 1 :]
    if at < 1 or not new:
        raise UserError(
            "write the current name, '=' and the new name",
            where=f"--labels {text}",
            hint="for example --labels fedavg=FedAvg, or --labels 'fedavg, deadline=25s=FedAvg 25 s'",
        )
    return old, new


def _default(first: Path) -> Path:
    is_beside = (first / "run.json").exists() or not first.is_dir()  # A run or a log.
    return (first.parent if is_beside else first) / "comparison"


def _document(comparison: Comparison, page: Path) -> dict[str, Any]:
    from fedsim.analysis.comparison.cautions import cautions
    from fedsim.analysis.comparison.headline import causes_document, headline, other_targets

    return {
        "page": str(page),
        "headline": " ".join(headline(comparison)),
        "other_targets": other_targets(comparison),
        "causes": causes_document(comparison),
        "cautions": cautions(comparison),
        "no_difference": comparison.no_difference,
        "baseline": comparison.baseline,
        "groups": _rows(comparison.summary),
        "targets": _rows(comparison.targets),
        "pairs": _rows(comparison.pairs),
        "differing": list(comparison.grouping.differing),
        "left_out": {str(item.path): item.reason for item in comparison.left_out},
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def _print(comparison: Comparison, page: Path) -> None:
    from fedsim.analysis.comparison.cautions import cautions
    from fedsim.analysis.comparison.figures import relative_speeds
    from fedsim.analysis.comparison.headline import headline, other_targets

    console = terminal.console()
    first, *more = headline(comparison)
    console.print(first, style="bold")
    for sentence in (*more, *other_targets(comparison)):
        console.print(sentence)
    for caution in cautions(comparison):
        console.print(caution, style="yellow")
    _print_table(comparison)
    targets = comparison.targets
    if (
        comparison.goals
        and (targets["relative"].notna() & (targets["reached"] < targets["runs"])).any()
    ):
        console.print(f"{relative_speeds(comparison)}.")
    # The names of logs say that they are.
    _print_differing(console, [path for path in comparison.grouping.differing if path != "clock"])
    console.print(f"page: {page}", soft_wrap=True)


def _print_table(comparison: Comparison) -> None:
    """Print final values, times and client updates to the main target, or the main figures of timing-only runs."""
    from fedsim.analysis.comparison.facts import FIGURES, SPENT, TIMING_TABLE
    from fedsim.analysis.comparison.headline import rows_in_order, targets_in_order
    from fedsim.vocabulary.formatting import format_mean, format_mean_count, format_number

    frame = rows_in_order(comparison)
    rows = frame.to_dict("records")
    finals = () if comparison.is_stopped else comparison.main_metrics
    metrics = map(comparison.definition, finals)
    shown = [(f"final {each.label}", f"final_{each.name}", each.unit) for each in metrics]
    named = SPENT if all(run.metrics for run in comparison.facts) else TIMING_TABLE
    shown += [(FIGURES[name][0], name, FIGURES[name][1]) for name in named]
    columns = {
        heading: [format_mean(row[name], row[f"{name}_sd"], kind) for row in rows]
        for heading, name, kind in shown
        if name not in ("energy_j", *SPENT) or comparison.summary[name].any()
    }
    main = targets_in_order(comparison)[:1]
    for goal in comparison.goals:
        standings = frame[["setting", "label"]].merge(comparison.standings(goal))
        reached = standings.to_dict("records")
        times = [_reached(row, comparison.baseline) for row in reached]
        columns[f"time to {comparison.phrase(goal)}"] = times
        if goal in main:
            columns[f"client updates to {comparison.phrase(goal)}"] = [
                format_mean_count(row["client_updates"])
                + (
                    f" ({format_number(row['client_updates_per_h'])}/h)"
                    if math.isfinite(row["client_updates_per_h"])
                    else ""
                )
                for row in reached
            ]
    names = ["setting"] * (len(comparison.grouping.settings) > 1) + ["label"]
    cells = [
        [*(str(row[name]) for name in (*names, "runs")), *values]
        for row, *values in zip(rows, *columns.values(), strict=True)
    ]
    right = ["runs", *columns]
    options.print_table([*names[:-1], "variant", *right], cells, right=right)


def _print_differing(console: Any, paths: Sequence[str]) -> None:
    """The keys that differ, one line per section; of many only the first, as the page has all with their values."""
    from fedsim.analysis.comparison.figures import KEYS_SHOWN
    from fedsim.scenario.comparing import by_section

    if paths:
        console.print(f"keys that differ: {format_count(len(paths))}")
    shown = [path for inside in by_section(paths).values() for path in inside]
    for section, inside in by_section(shown[:KEYS_SHOWN]).items():
        keys = ", ".join(path.removeprefix(f"{section}.") for path in inside)
        console.print(f"  {section}: {keys}")
    if len(paths) > KEYS_SHOWN:
        more = f"  and {format_count(len(paths) - KEYS_SHOWN)} more; the page shows all of them with their values"
        console.print(more)


def _reached(at: dict[Hashable, Any], baseline: str) -> str:
    """When a variant reached a target, by how many of its runs if not by all, and its speed relative to a baseline."""
    from fedsim.analysis.comparison.tables import SAME
    from fedsim.vocabulary.formatting import format_duration, format_speed

    parts = [format_duration(at["time_s"])]
    if at["reached"] < at["runs"]:
        parts.append(f"[{at['reached']} of {at['runs']}]")
    if math.isfinite(at["speed"]) and baseline not in at["label"].split(SAME):
        parts.append(f"({format_speed(at['speed'])})")
    return " ".join(parts)
