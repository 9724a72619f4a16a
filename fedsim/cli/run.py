"""``fedsim run``: run a scenario."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli.options import (
    json_option,
    live_option,
    output_option,
    override_option,
    path_type,
    scenario_argument,
    user_code_option,
)
from fedsim.cli.progress import following, next_command
from fedsim.vocabulary.formatting import format_command


@click.command(name="run")
@scenario_argument
@override_option
@user_code_option
@output_option("Run folder; runs/<name>-seed<seed> by default.")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing run; a failed run is always replaced.",
)
@click.option(
    "--timeline",
    type=path_type,
    metavar="RUN",
    help="Train on the recorded timeline of this run folder instead of simulating time again.",
)
@click.option("--timing-only", is_flag=True, help="Simulate only time, without training.")
@live_option
@json_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    timeline: Path | None,
    timing_only: bool,
    live: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO (a YAML file, or a built-in name) and write a run folder with tables, model and report.

    With --timeline, training is repeated on the recorded timeline of another run: the method, the optimizer and the
    seed of the learning may differ; devices, schedule, traffic and numbers of steps may not. A run whose schedule
    depended on learned values (a target, a selection by loss) is refused. Devices and data split are those of the
    recorded run.

    Exit code 2 means that the scenario or the folder cannot be used. Continue an interrupted run with 'fedsim resume'.
    """
    from fedsim.analysis.run import load_run
    from fedsim.cli.summary import print_summary
    from fedsim.composition.execution import default_folder, execute
    from fedsim.scenario.loading import load_scenario

    loaded = load_scenario(scenario, overrides=overrides)
    folder = output or default_folder(loaded)
    with (
        next_command(folder, format_command("resume", folder)),
        following(loaded.scenario.name, folder, quiet=as_json) as on_progress,
    ):
        run = execute(
            loaded,
            folder,
            overwrite=overwrite,
            timing_only=timing_only,
            timeline=None if timeline is None else load_run(timeline),
            live=live,
            on_progress=on_progress,
        )
    print_summary(run, as_json=as_json)
