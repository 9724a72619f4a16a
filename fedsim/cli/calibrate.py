"""``fedsim calibrate``: a trace bundle from the log of a real run."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli import options
from fedsim.files import terminal
from fedsim.vocabulary.formatting import format_count, format_number


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from fedsim.calibration.log import json_schema

        options.print_json(json_schema())
        context.exit()


@click.command(name="calibrate")
@click.argument("log", type=options.path_type)
@click.option(
    "--scenario",
    type=options.path_type,
    shell_complete=options.complete_scenario,
    help="Scenario of the logged run, to simulate on the calibrated devices; a run folder contains its own.",
)
@click.option(
    "--power",
    type=options.path_type,
    multiple=True,
    help="Table of power readings of the devices, or a folder of them; repeatable.",
)
@options.output_option(
    "Folder of the new trace bundle; its page and scenario are written beside it.",
    type=options.folder_type,
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of one row of LOG, and exit.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only read LOG, and name its wrong rows, the first twenty of each kind, with their fixes; write nothing.",
)
@options.force_option
@options.user_code_option
@options.json_option
def command(
    log: Path,
    scenario: Path | None,
    power: tuple[Path, ...],
    output: Path | None,
    check: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Estimate devices from LOG and write them as a trace bundle.

    LOG is a table with one row per dispatch (CSV, Parquet, JSON lines, ...; .gz and the like), the log of a Flower
    server, or a run folder. It needs the columns 'client', 'start' and
    'end' (seconds or ISO 8601 timestamps), and should have 'downloaded' and 'computed' (the ends of the download and
    of the local steps), 'steps', 'bytes_down', 'bytes_up', 'round' and 'outcome'. 'client' may also be called
    'client_id', 'client_name' or 'device_id', to say what its names are. If clients paused while they were
    offline, 'download_s', 'compute_s' and 'upload_s' are the seconds of work in each phase, without the pauses.

    Writes the bundle, a page (BUNDLE.html) that compares simulation and log, and with a scenario the calibrated
    scenario (BUNDLE.yaml).
    """
    from fedsim.analysis.pages import MARK, require_own
    from fedsim.calibration import calibrate
    from fedsim.calibration.log import read_log
    from fedsim.calibration.page import document, summary, write_calibration_page
    from fedsim.calibration.prediction import verdict
    from fedsim.errors import UserError
    from fedsim.files.durable import write_text
    from fedsim.runs.folder import RunFolder
    from fedsim.runs.records import RUN
    from fedsim.scenario.loading import load_scenario
    from fedsim.scenario.source import relocated, to_yaml
    from fedsim.traces.bundle import check_output

    if check:
        read = read_log(log, every_row=True)
        counts = {"dispatches": len(read.dispatches), "clients": len(read.clients())}
        if as_json:
            options.print_json({**counts, "flags": list(read.flags)})
            return
        click.echo(", ".join(f"{name}: {format_count(count)}" for name, count in counts.items()))
        for flag in read.flags:
            terminal.secho(flag, fg="yellow")
        return
    if output is None:
        raise click.UsageError(
            "Missing option '-o' / '--output'; with --check, nothing is written."
        )
    if scenario is None and RUN.is_in(log):
        scenario = RunFolder(log).intact_scenario()
    loaded = None if scenario is None else load_scenario(scenario)
    check_output(output, overwrite=force)
    # with_name, not with_suffix: the name of a bundle may have dots.
    page, calibrated = (output.with_name(f"{output.name}.{end}") for end in ("html", "yaml"))
    require_own(page)
    if scenario is not None:
        require_own(calibrated)
    result = calibrate(log, output, loaded, power=power, overwrite=force)
    try:
        write_calibration_page(result, page)
        if result.scenario is not None:
            beside = relocated(result.scenario, calibrated.parent.resolve())
            write_text(calibrated, f"{MARK}\n{to_yaml(beside)}")
    except UserError as error:
        hint = "the bundle is written; once this is corrected, repeat the command with --force"
        raise UserError(error.message, where=error.where, hint=hint) from error
    texts = {
        tile.label: ", ".join(filter(None, (tile.value, tile.note))) for tile in summary(result)
    }
    coverage = {each.name: each.coverage for each in result.predictions}
    if as_json:
        content = {
            "bundle": str(output),
            "page": str(page),
            "scenario": str(calibrated) if result.scenario is not None else None,
            "verdict": verdict(result.predictions),
            "summary": texts,
            "coverage": coverage,
            "flags": list(result.flags),
            **document(result),
        }
        options.print_json(content)
        return
    terminal.secho(verdict(result.predictions), bold=True)
    options.print_rows(texts)
    for each in result.predictions:
        if len(each.logged) > 1:
            covered = f"covers {each.coverage:.0%} of the values left out of the fit"
            options.echo_bullet(f"The 90% band for the {each.name} {covered}.")
        else:
            low, at, high = (format_number(one[0]) for one in (each.low, each.logged, each.high))
            side = "within" if each.coverage else "outside"
            options.echo_bullet(
                f"The {each.name} after the fit, {at}, lies {side} its 90% band, {low} to {high}."
            )
    for flag in result.flags:
        options.echo_bullet(flag, fg="yellow")
    click.echo(f"bundle: {output}")
    if result.scenario is not None:
        click.echo(f"scenario: {calibrated}")
    click.echo(f"page: {page}")
