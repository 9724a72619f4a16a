"""``fedsim flower``: run a Flower app on simulated devices."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli import options
from fedsim.cli.progress import following, same_command
from fedsim.cli.summary import print_summary


@click.command(name="flower")
@click.argument("app", type=options.path_type)
@click.option(
    "--devices",
    type=options.path_type,
    metavar="YAML",
    help="Devices file with the sections task, devices and stop; by default, 10 nodes that are always online.",
)
@options.run_config_option
@options.override_option
@options.ignore_option
@options.user_code_option
@options.output_option("Run folder; runs/<app>-seed<seed> by default.")
@options.overwrite_option("Replace an existing run.")
@options.json_option
def command(
    app: Path,
    devices: Path | None,
    run_config: str,
    overrides: tuple[str, ...],
    ignore: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Run APP (the folder of a Flower app) in simulated time and write a run folder with tables and report.

    The app needs no changes. Its messages take the time that the devices need: the download of their bytes, the work
    that the ClientApp does, and the upload of its reply. In the ServerApp, time.time, time.sleep and datetime.now mean
    simulated time. Needs the extra 'flower': pip install "fedsim-des[flower]".
    """
    from fedsim.composition.run import default_folder
    from fedsim.flower.running import App, execute, load_devices

    source = App.read(app, run_config)
    scenario = load_devices(devices, source.name, overrides).ignoring(ignore)
    folder = output or default_folder(scenario)
    again = same_command(*([] if overwrite else ["--overwrite"]))
    # Lines, because the app writes to the terminal as well.
    with following(source.name, folder, again, quiet=as_json, bar=False) as on_progress:
        run = execute(source, scenario, folder, overwrite=overwrite, on_progress=on_progress)
    code = options.exit_code(0 if run.info["messages"] else 2)
    print_summary(run, as_json=as_json)
    if code:
        click.echo("error: the app sent no message to a node, so nothing was simulated", err=True)
    return code
