"""``fedsim compare``: runs side by side."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from fedsim.cli.options import json_option
from fedsim.cli.progress import bar_columns

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.analysis.comparison import Comparison


@click.command(name="compare")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of page, tables and figure; 'comparison' in the first RUN's folder, or beside it, by default.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="METRIC=VALUE",
    help="A value to be reached, such as accuracy=0.9; may be repeated. By default those the scenarios state.",
)
@click.option(
    "--baseline", metavar="LABEL", help="Variant that times are relative to; the first by default."
)
@json_option
def command(
    runs: tuple[Path, ...],
    output: Path | None,
    targets: tuple[str, ...],
    baseline: str | None,
    as_json: bool,
) -> None:
    """Compare RUN... (run folders, or the folder of a sweep) on one page.

    Runs that differ in their seed alone form a group; groups are named after what sets their scenarios apart. Writes a
    page that works offline, tables (CSV, Parquet, LaTeX) and a figure (PDF, SVG) into one folder.
    """
    from fedsim.analysis.comparison import compare

    with _following(quiet=as_json) as on_progress:
        comparison = compare(runs, targets=targets, baseline=baseline, on_progress=on_progress)
        page = comparison.write(output if output is not None else _default(runs[0]))
    if as_json:
        click.echo(json.dumps(_document(comparison, page), indent=2))
    else:
        _print(comparison, page)


def _default(first: Path) -> Path:
    is_run = (first / "run.json").exists()
    return (first.parent if is_run else first) / "comparison"


def _document(comparison: Comparison, page: Path) -> dict[str, Any]:
    from fedsim.analysis.comparison.figures import headline

    return {
        "page": str(page),
        "headline": headline(comparison),
        "no_difference": comparison.no_difference,
        "baseline": comparison.baseline,
        "groups": _rows(comparison.summary),
        "targets": _rows(comparison.targets),
        "pairs": _rows(comparison.pairs),
        "left_out": {str(item.path): item.reason for item in comparison.left_out},
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON holds them: absent numbers are null."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def _print(comparison: Comparison, page: Path) -> None:
    from rich.table import Table

    from fedsim.analysis.comparison.figures import headline, notice
    from fedsim.units import format_duration

    console = Console()
    console.print(headline(comparison), style="bold", highlight=False)
    if notice(comparison):
        console.print(notice(comparison), style="yellow", highlight=False)
    table = Table(show_edge=False)
    several = len(comparison.grouping.settings) > 1
    for name in (*(("setting",) if several else ()), "variant", "runs"):
        table.add_column(name)
    metric = comparison.metrics[0] if comparison.metrics else None
    if metric:
        table.add_column(f"final {metric}", justify="right")
    for goal in comparison.goals:
        table.add_column(f"time to {goal.title}", justify="right")
    times = comparison.targets
    for row in comparison.summary.itertuples(index=False):
        cells = [row.setting] if several else []
        cells += [row.label, str(row.runs)]
        if metric:
            cells.append(f"{getattr(row, f'final_{metric}'):.4g}")
        here = (
            times[(times["setting"] == row.setting) & (times["label"] == row.label)]
            if len(times)
            else times
        )
        for time_s, relative in zip(here.get("time_s", []), here.get("relative", []), strict=True):
            shown = "-" if math.isnan(time_s) else format_duration(time_s)
            cells.append(shown if math.isnan(relative) else f"{shown} ({relative:.2f}x)")
        table.add_row(*map(str, cells))
    console.print(table)
    console.print(f"page: {page}", soft_wrap=True, highlight=False)


@contextlib.contextmanager
def _following(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    from rich.progress import Progress

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Progress(*bar_columns(), console=console, transient=True) as bar:
        task = bar.add_task("reading runs", total=1.0, text="")

        def show(number: int, count: int) -> None:
            bar.update(task, completed=number / count, text=f"{number} of {count}")

        yield show
