"""``fedsim scenario``: check, show, list, schema."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedsim.catalog import CATALOG, summary
from fedsim.cli.options import (
    Suggesting,
    json_option,
    override_option,
    scenario_argument,
    user_code_option,
)
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario
from fedsim.scenario.schema import json_schema
from fedsim.scenario.source import read_yaml


@click.group(cls=Suggesting)
def command() -> None:
    """Check, show and describe scenarios."""


@command.command()
@scenario_argument
@override_option
@user_code_option
def check(scenario: Path, overrides: tuple[str, ...]) -> None:
    """Check a scenario file, and whether its parts, traces and data fit together.

    Whatever 'fedsim run' refuses before its first event is refused here with the same message. Nothing is downloaded: a
    data set that is not on the disk is named, and what depends on it is not checked.
    """
    from fedsim.composition.checking import check as check_run
    from fedsim.composition.shared import Shared
    from fedsim.tasks.reading.files import NotOnDisk, no_downloads

    loaded = load_scenario(scenario, overrides=overrides)
    runs = [loaded]
    if loaded.scenario.sweep is not None:
        from fedsim.sweeps.plan import plan_runs

        runs = [planned.loaded for planned in plan_runs(loaded)]
    shared, missing = Shared(), dict[str, None]()
    with no_downloads():
        for run in runs:
            try:
                check_run(run, shared)
            except NotOnDisk as error:
                missing[
                    f"{error.where}: {error.message}, so what depends on it was not checked"
                ] = None
    for note in missing:
        click.echo(f"note: {note}")
    click.echo(f"{scenario}: scenario '{loaded.scenario.name}' is in order")


@command.command()
@scenario_argument
@override_option
@json_option
def show(scenario: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show a scenario with every default written out."""
    loaded = load_scenario(scenario, overrides=overrides, user_code="describe")
    if as_json:
        click.echo(json.dumps(loaded.resolved(), indent=2))
    else:
        click.echo(loaded.resolved_yaml(), nl=False)


@command.command()
def schema() -> None:
    """Write the JSON Schema of scenarios, for editors: completion and checks while typing."""
    click.echo(json.dumps(json_schema(CATALOG), indent=2))


@command.command("list")
@click.argument(
    "folder", type=click.Path(path_type=Path), default=Path("scenarios"), required=False
)
@json_option
def list_(folder: Path, as_json: bool) -> None:
    """List the scenario files under FOLDER (default: scenarios) and the parts a scenario may name."""
    if not folder.is_dir() and folder != Path("scenarios"):
        raise UserError("no such folder", where=str(folder))
    scenarios = {str(path): _title(path) for path in sorted(folder.rglob("*.y*ml"))}
    parts = {
        kind: {name: summary(component) for name, component in sorted(entry.registry().items())}
        for kind, entry in CATALOG.kinds.items()
    }
    if as_json:
        click.echo(json.dumps({"scenarios": scenarios, "parts": parts}, indent=2))
        return
    for title, rows in [("scenarios", scenarios), *parts.items()]:
        if rows:
            click.secho(title, bold=True)
            width = max(len(name) for name in rows)
            for name, line in rows.items():
                click.echo(f"  {name:<{width}}  {line}".rstrip())


def _title(path: Path) -> str:
    """The first comment of a scenario file, or its name."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("#") and line.strip("# "):
            return line.strip("# ")
        if line.strip() and not line.startswith("#"):
            break
    data = read_yaml(path).data
    return str(data.get("name", "")) if isinstance(data, dict) else ""
