"""``fedsim export``: write a run for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli.options import output_option, run_argument


@click.command(name="export")
@run_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(["perfetto", "csv", "tensorboard"]),
    required=True,
    help="perfetto: a file for ui.perfetto.dev or chrome://tracing. csv: a folder of tables. tensorboard: a folder of "
    "event files.",
)
@output_option(
    "File or folder to write; timeline.json, csv or tensorboard in the run folder by default."
)
def command(run: Path, format_: str, output: Path | None) -> None:
    """Write RUN, a run folder, for other tools.

    The run may still be in progress, or may have been killed: everything that has reached the disk is written.
    """
    from fedsim.analysis.export import export
    from fedsim.analysis.run import load_run

    click.echo(export(load_run(run), format_, output))
