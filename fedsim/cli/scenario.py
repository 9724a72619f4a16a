"""``fedsim scenario``: check, show, list, schema."""

from __future__ import annotations

import os
import re
from itertools import islice, takewhile
from pathlib import Path

import click

from fedsim import bundled
from fedsim.cli import Suggesting, options
from fedsim.errors import UserError, without_numbers
from fedsim.files import terminal
from fedsim.parts.catalog import CATALOG, summaries
from fedsim.scenario.description import section_of
from fedsim.scenario.loading import LoadedScenario, load_scenario
from fedsim.scenario.schema import json_schema
from fedsim.scenario.source import read_yaml
from fedsim.vocabulary.formatting import (
    NAMED,
    format_command,
    format_count,
    format_counted,
    format_names,
)

_LISTED = 24
_FIRST = 10


@click.group(cls=Suggesting)
def command() -> None:
    """Check, show and describe scenarios."""


@command.command()
@options.scenario_options
@click.option(
    "--replay",
    is_flag=True,
    help="Also run its beginning three times, which finds parts of yours whose results cannot be repeated.",
)
@click.option(
    "--devices",
    type=options.path_type,
    metavar="YAML",
    help="Devices file, if SCENARIO is a Flower app.",
)
@options.run_config_option
@options.json_option
def check(
    scenario: Path,
    overrides: tuple[str, ...],
    ignore: tuple[str, ...],
    replay: bool,
    devices: Path | None,
    run_config: str,
    as_json: bool,
) -> None:
    """Check a scenario file, and whether its parts, traces and data fit together.

    Everything that 'fedsim run' refuses before its first event is refused here with the same message, and the same
    rules warn about settings that are probably not intended ('fedsim describe rules' lists the rules). Nothing is
    downloaded: a data set that is not on the disk is named, and anything that depends on it is not checked.

    With --replay, at least 50 dispatches and two server updates are run in two processes with different seeds of the
    global random generators and of string hashes, and once more one dispatch at a time, resumed from a checkpoint. The
    first difference is shown with the part that caused it. Of a sweep, the first run is taken.

    SCENARIO may also be the folder of a Flower app. With --replay, its beginning is run in two processes.
    """
    # The runs with each note, by its text without numbers, and the text as it is for the first of them.
    runs_with, texts = dict[str, list[str]](), dict[str, str]()
    is_app, runs, replayed = scenario.is_dir(), dict[str, LoadedScenario](), dict[str, str]()
    swept = None
    if is_app:
        from fedsim.flower.replay import replay as replay_app
        from fedsim.flower.running import App, check_devices, load_devices

        name = App.read(scenario, run_config).name
        loaded = load_devices(devices, name, overrides).ignoring(ignore)
        texts = {text: text for text in (f"warning: {each}" for each in check_devices(loaded))}
        if replay:
            replayed["replay"] = replay_app(scenario, devices, overrides, run_config)
    else:
        from fedsim.composition.build import check_scenario as check_run
        from fedsim.composition.shared import Shared
        from fedsim.tasks.reading.files import NotOnDisk, no_downloads

        shared = Shared()
        with no_downloads():
            loaded = load_scenario(scenario, overrides=overrides).ignoring(ignore)
            name = loaded.scenario.name
            runs = {name: loaded}
            if loaded.scenario.sweep is not None:
                from fedsim.sweeps.plan import plan_runs

                runs = {run.name: run.loaded for run in plan_runs(loaded)}
                swept = list(runs)
            for run_name, run in runs.items():
                try:
                    notes = [f"warning: {warning}" for warning in check_run(run, shared)]
                except NotOnDisk as error:
                    skipped = "so anything that depends on it was not checked"
                    notes = [f"note: {error.where}: {error.message}, {skipped}"]
                for note in notes:
                    texts.setdefault(without_numbers(note), note)
                    runs_with.setdefault(without_numbers(note), []).append(run_name)
        if replay:
            from fedsim.composition.replay import replay as replay_beginning

            replayed["replay"] = str(replay_beginning(next(iter(runs.values()))))
    if as_json:
        of_sweep = {} if swept is None else {"runs": swept}
        notes = list(texts.values())
        options.print_json({"scenario": str(scenario), "notes": notes, **of_sweep, **replayed})
        return
    for key, note in texts.items():
        names = runs_with.get(key, list(runs))
        others = f"\n  in {len(names)} of {len(runs)} runs: {format_names(names, NAMED)}"
        click.echo(note + (others if len(names) < len(runs) else ""))
    for text in replayed.values():
        click.echo(f"replay: {text}")
    valid = f"{scenario}: {'app' if is_app else 'scenario'} '{name}' is valid"
    if swept is None:
        click.echo(valid)
        return
    click.echo(f"{valid}: a sweep of {format_counted(len(swept), 'run')}")
    for run_name in swept[:_LISTED]:
        click.echo(f"  {run_name}")
    if swept[_LISTED:]:
        click.echo(f"  and {format_count(len(swept) - _LISTED)} more")


@command.command()
@options.scenario_argument
@options.override_option
@options.json_option
def show(scenario: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show a scenario with every default written out."""
    loaded = load_scenario(scenario, overrides=overrides, user_code="describe")
    if as_json:
        options.print_json(loaded.resolved())
    else:
        click.echo(loaded.resolved_yaml(), nl=False)


@command.command()
def schema() -> None:
    """Write the JSON Schema of scenarios, for completion and checks in editors."""
    options.print_json(json_schema())


@command.command("list")
@click.argument("folder", type=options.path_type, required=False)
@click.option("--all", "shows_all", is_flag=True, help="List everything, one line each.")
@options.json_option
def list_(folder: Path | None, as_json: bool, shows_all: bool) -> None:
    """List the scenarios that come with fedsim, or those under FOLDER, the templates of 'fedsim init', and the parts a
    scenario may name."""
    if folder is None:
        files = bundled.scenarios()
    elif folder.is_dir():
        inside = (Path(root, name) for root, _, names in os.walk(folder) for name in sorted(names))
        files = {str(path): path for path in inside if path.match("*.y*ml") and path.is_file()}
    else:
        is_part = any(folder.name in CATALOG.parts(kind) for kind in CATALOG.kinds)
        hint = (
            f"to describe the part: {format_command('describe', folder.name)}" if is_part else None
        )
        raise UserError("no such folder", where=folder, hint=hint)
    described = {name: _description(path) for name, path in files.items()}
    scenarios = {name: text for name, text in described.items() if text is not None}
    parts = {kind: summaries(CATALOG.parts(kind)) for kind in CATALOG.kinds}
    if as_json:
        options.print_json(
            {"scenarios": scenarios, "templates": bundled.templates(), "parts": parts}
        )
        return
    sections = {"scenarios": scenarios}
    if folder is None:
        sections["templates (fedsim init)"] = bundled.templates()
    if shows_all or folder is not None:
        sections |= parts
    else:
        counts: dict[str, list[str]] = {}
        for kind, rows in parts.items():
            counts.setdefault(section_of(kind).partition(".")[0], []).append(
                f"{kind} ({len(rows)})"
            )
        sections["parts (fedsim describe)"] = {key: ", ".join(each) for key, each in counts.items()}
    for title, rows in sections.items():
        if rows:
            terminal.secho(title, bold=True)
            first = dict(islice(rows.items(), None if shows_all or folder else _FIRST))
            options.print_rows(first, indent="  ")
    if not (shows_all or folder):
        more = format_counted(len(scenarios) - _FIRST, "scenario")
        click.echo(
            f"{more} more: fedsim scenario list --all; the parts of a kind: fedsim describe method",
            err=True,
        )


def _description(path: Path) -> str | None:
    """The first sentence of a scenario file's first comment, or its name; None if it is not a scenario."""
    try:
        data = read_yaml(path).data
    except UserError:
        return "(cannot be read)"
    if not isinstance(data, dict) or "task" not in data:
        return None
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    comment = takewhile(lambda line: line.strip("# ") and line.startswith("#"), lines)
    text = " ".join(line.strip("# ") for line in comment)
    # A reference in parentheses, such as "IEEE Trans. Cybern.", ends no sentence.
    sentence = re.match(r"((?:\([^)]*\)|[^(])*?)(?:\.(?= +[A-Z\d])|:(?= +fedsim ))", text)
    return (sentence[1] if sentence else text.rstrip(".")) or str(data.get("name", ""))
