"""``fedsim what-if``: a run again with a change, beside the original."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import options
from fedsim.cli.progress import following
from fedsim.errors import UserError
from fedsim.vocabulary.formatting import (
    ABSENT,
    Kind,
    format_command,
    format_difference,
    format_share,
    format_value,
)

if TYPE_CHECKING:
    from fedsim.analysis.run import Run


@click.command("what-if")
@options.run_argument
@options.set_option(
    "overrides",
    "A change by its dotted path: a value, or a factor on the present one, such as -s devices.network.up=2x",
    "PATH=VALUE",
)
@click.option(
    "--without-clients",
    "without",
    metavar="WHICH",
    help="Keep clients out: slowest:SHARE by seconds per local step, such as slowest:5%, or numbers, such as 3,17.",
)
@options.output_option("Folder of the new run; the folder of RUN with '-what-if' by default.")
@options.json_option
def command(
    run: Path, overrides: tuple[str, ...], without: str | None, output: Path | None, as_json: bool
) -> None:
    """Run RUN, a complete run, again with a change, and show how its main figures change.

    The random numbers are the same: devices, data, draws and failures differ only where the change makes them differ.

    Without a change, show what the server of RUN waited for until it reached its target and until the last update, and
    the changes that would save most if as many updates were needed as before: predictions, until they are run.
    """
    from fedsim.analysis.run import load_run
    from fedsim.composition.what_if import default_folder, require_complete, what_if
    from fedsim.scenario.overrides import Override

    before = load_run(run)
    if not overrides and without is None:
        require_complete(before)
        _print_waiting(before, as_json)
        return
    folder = output or default_folder(before)
    again, name = format_command("resume", folder), before.entry("name")
    with following(name, folder, again, quiet=as_json) as on_progress:
        changes = [Override.parse(text) for text in overrides]
        _, figures = what_if(before, changes, without, folder, on_progress)
    rows = list(figures.itertuples(index=False, name=None))
    if as_json:
        options.print_json({label: {"before": old, "after": new} for label, _, old, new in rows})
    else:
        _print(rows, run, folder)


def _print_waiting(run: Run, as_json: bool) -> None:
    from fedsim.analysis.figures.time import waiting

    figure = waiting(run)
    if figure is None:
        raise UserError("the run has no server update, so nothing was waited for", where=run.path)
    if as_json:
        options.print_json(figure.document())
        return
    options.echo_text(figure.finding)
    columns = figure.columns
    rows = (
        [format_value(value, column.kind) for value, column in zip(row, columns, strict=True)]
        for row in figure.rows
    )
    numeric = [column.label for column in columns if column.numeric]
    options.print_table([column.label for column in columns], rows, right=numeric, box=None)
    for change in figure.extra["changes"]:
        click.echo(f"{change['change']}: {change['effect']}; to try it:")
        click.echo(f"  {change['command']}")


def _print(rows: list[tuple[str, Kind, float, float]], run: Path, folder: Path) -> None:
    if all(old == new or (math.isnan(old) and math.isnan(new)) for _, _, old, new in rows):
        click.echo(f"No effect: all {len(rows)} figures are the same.")
        click.echo(f"more: {format_command('compare', run, folder)}")
        return
    cells = []
    for label, kind, old, new in rows:
        both = ["not reached" if math.isnan(v) else format_value(v, kind) for v in (old, new)]
        change = ABSENT  # A change that the values do not show means nothing.
        if both[0] != both[1] and kind == "share":
            change = format_difference(new - old, kind)
        elif both[0] != both[1] and old and math.isfinite(new / old):
            change = ("+" if new > old else "") + format_share(new / old - 1)
        cells.append([label, *both, change])
    title: Any = {"title": f"{run.name}: what if", "title_justify": "left", "show_edge": True}
    headings = ["", "run", "what if", "change"]
    options.print_table(headings, cells, right=headings[1:], **title)
    click.echo(f"more: {format_command('compare', run, folder)}")
