"""``fedsim report``: rebuild the page of a run."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli.options import output_option, run_argument


@click.command(name="report")
@run_argument
@output_option("Where to write the page; report.html in the run folder by default.")
def command(run: Path, output: Path | None) -> None:
    """Write the report page of RUN, a run folder.

    The run may still be in progress, or may have been killed: the page then shows what has reached the disk.
    """
    from fedsim.analysis.run import load_run

    click.echo(load_run(run).report(output))
