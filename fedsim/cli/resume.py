"""``fedsim resume``: finish a run that was interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli.options import (
    json_option,
    live_option,
    run_argument,
    set_option,
    user_code_option,
)
from fedsim.cli.progress import following, next_command
from fedsim.vocabulary.formatting import format_command


@click.command(name="resume")
@run_argument
@set_option(
    "overrides",
    "Resume with a different training.workers, training.threads, training.memory, training.cuda_graphs or logging, "
    "such as -s training.threads=2",
    "PATH=VALUE",
)
@user_code_option
@live_option
@json_option
def command(run: Path, overrides: tuple[str, ...], live: bool, as_json: bool) -> None:
    """Finish RUN, a run folder whose run was killed or interrupted.

    The result is bit for bit that of an uninterrupted run, even with different workers (-s). A complete run is left as
    it is.

    Training continues from the last checkpoint. One is written at least every 30 seconds of wall time, and when the run
    is stopped by Ctrl-C, SIGTERM or SIGHUP; so a killed run repeats at most about its last 30 seconds.
    """
    from fedsim.cli.summary import print_summary
    from fedsim.composition.execution import resume

    def say(text: str) -> None:
        if not as_json:
            click.echo(text, err=True)

    with (
        next_command(
            run,
            format_command("resume", run),
            "give the command that began the run again: it replaces a failed run (a changed file cannot be resumed)",
        ),
        following(run.name, run, quiet=as_json) as on_progress,
    ):
        finished = resume(run, overrides, live=live, on_progress=on_progress, on_start=say)
    print_summary(finished, as_json=as_json)
