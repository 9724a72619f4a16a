"""``fedsim report``: write the page of a run anew."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the page; report.html in the run folder by default.",
)
def command(run: Path, output: Path | None) -> None:
    """Write the report page of RUN, a run folder.

    Also of a run that is going on or was killed: the page then shows what had reached the disk.
    """
    from fedsim.analysis.run import load_run

    click.echo(load_run(run).report(output))
