"""``fedsim run``, ``resume``, ``report`` and ``export``: the commands for one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import options
from fedsim.cli.progress import following
from fedsim.errors import UserError
from fedsim.processes.launch import follows
from fedsim.vocabulary.formatting import format_command

if TYPE_CHECKING:
    from fedsim.scenario.loading import LoadedScenario


@click.command()
@options.loaded_scenario
@options.output_option("Run folder; runs/<name>-seed<seed> by default.")
@options.overwrite_option("Replace an existing run; a failed run is always replaced.")
@options.timing_only_option
@options.json_option
def run(
    loaded: LoadedScenario,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Run SCENARIO (a YAML file, or a built-in name) and write a run folder with tables, model and report.

    Exit code 2 means that the scenario or the folder cannot be used. Continue an interrupted run with 'fedsim resume'.
    """
    from fedsim.cli.summary import print_summary
    from fedsim.composition.run import default_folder, execute

    folder = output or default_folder(loaded)
    silent = follows(loaded.scenario.training.workers.name)
    quiet = as_json or silent
    if loaded.user_code() and not quiet:
        tried = format_command("scenario", "check", "--replay", loaded.source.label)
        click.echo(f"to test whether results of your own code can be repeated: {tried}", err=True)
    again = format_command("resume", folder)
    shown = following(loaded.scenario.name, folder, again, quiet=quiet, silent=silent)
    with shown as on_progress:
        done = execute(loaded, folder, on_progress=on_progress, **settings)
    if not silent:
        print_summary(done, as_json=as_json)


@click.command()
@options.run_argument
@options.set_option(
    "overrides",
    "Resume with a different training.workers, training.threads, training.memory, training.cuda_graphs or logging, "
    "such as -s training.threads=2",
    "PATH=VALUE",
)
@options.user_code_option
@options.json_option
def resume(run: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Finish RUN, a run folder whose run was killed or interrupted.

    The result is bit for bit that of an uninterrupted run, even with more or fewer workers (-s). A complete run is left
    as it is.

    Training continues from the last checkpoint. One is written at least every 30 seconds of wall time, and when the run
    is stopped by Ctrl-C, SIGTERM or SIGHUP; so a killed run repeats at most about its last 30 seconds.
    """
    from fedsim.cli.summary import print_summary
    from fedsim.composition.run import resume as resume_run
    from fedsim.composition.run import workers_of

    silent = follows(workers_of(run))
    quiet = as_json or silent

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    again = "give the command that began the run again: it replaces a failed run (a changed file cannot be resumed)"
    shown = following(
        run.name, run, format_command("resume", run), again, quiet=quiet, silent=silent
    )
    with shown as on_progress:
        done = resume_run(run, overrides, on_progress=on_progress, on_start=say)
    if not silent:
        print_summary(done, as_json=as_json)


@click.command()
@options.run_argument
@options.output_option(
    "Where to write the page; report.html in the run folder by default.", is_page=True
)
def report(run: Path, output: Path | None) -> None:
    """Write the report page of RUN, a run folder.

    The run may still be in progress, or may have been killed: the page then shows what has reached the disk.
    """
    from fedsim.analysis.run import load_run

    click.echo(load_run(run).report(output))


class _Formats(click.Choice[str]):
    """The formats of ``fedsim export``; those of ``fedsim compare`` are told apart."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ("latex", "pdf", "svg", "png", "parquet"):
            command = format_command("compare", "RUN")
            hint = f"{command} -o FOLDER writes LaTeX and Parquet tables, and figures as PDF, SVG and PNG"
            raise UserError(f"'{value}' is a format of a comparison", where="--format", hint=hint)
        return super().convert(value, param, ctx)


@click.command()
@options.run_argument
@click.option(
    "--format",
    "format_",
    type=_Formats(["perfetto", "csv", "tensorboard"]),
    required=True,
    help="perfetto: a file for ui.perfetto.dev or chrome://tracing. csv: a folder of tables. tensorboard: a folder of "
    "event files.",
)
@options.output_option(
    "File or folder to write; timeline.json, csv or tensorboard in the run folder by default."
)
def export(run: Path, format_: str, output: Path | None) -> None:
    """Write RUN, a run folder, for other tools.

    The run may still be in progress, or may have been killed: everything that has reached the disk is written. LaTeX
    tables and figures come from 'fedsim compare RUN'.
    """
    from fedsim.analysis.export import export as write
    from fedsim.analysis.run import load_run

    click.echo(write(load_run(run), format_, output))
