"""``fedsim resume``: finish a run that was interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedsim.cli.options import json_option, user_code_option
from fedsim.cli.progress import following, resumable


@click.command(name="resume")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-s",
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Go on with another training.workers, training.threads, training.memory or training.cuda_graphs, such as"
    " -s training.threads=2; may be repeated.",
)
@user_code_option
@json_option
def command(run: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Finish RUN, a run folder whose run was killed or interrupted.

    The result is the one the run would have had, bit for bit, also with other workers (-s). A complete run is left as
    it is.
    """
    from fedsim.cli.summary import print_summary
    from fedsim.composition.execution import resume

    with (
        resumable(run, f"fedsim resume {run}"),
        following(run.name, quiet=as_json) as on_progress,
    ):
        finished = resume(run, overrides, on_progress=on_progress)
    if as_json:
        click.echo(json.dumps({"path": str(finished.path), **finished.info}))
    else:
        print_summary(finished)
