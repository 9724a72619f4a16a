"""``fedsim traces``: import, fetch, synthesize, inspect, validate, combine and export trace bundles."""

from __future__ import annotations

import functools
import inspect as inspection
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from pydantic import BaseModel, ValidationError

from fedsim import bundled
from fedsim.cli import Suggesting, options
from fedsim.cli.progress import advancing
from fedsim.errors import UserError, unknown
from fedsim.files import terminal
from fedsim.files.durable import require_new
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import is_user_reference
from fedsim.parts.parameters import without_markup
from fedsim.scenario.description import parameters
from fedsim.scenario.overrides import apply_overrides
from fedsim.scenario.problems import all_errors, problems
from fedsim.scenario.source import Source
from fedsim.traces import combine, exporters, public, synthesis
from fedsim.traces.bundle import TraceBundle, check_output
from fedsim.traces.importers import Importer, import_bundle, recognize
from fedsim.traces.inspection import as_data, first_rows, write_text
from fedsim.traces.statistics import describe, first_look
from fedsim.traces.validation import (
    implausible_rates,
    implausible_times,
    require_sound,
    validate_bundle,
)
from fedsim.vocabulary.formatting import format_bytes, format_command, format_count, format_counted

T = TypeVar("T")


class _BundlePath(click.Path):
    """A path of a trace bundle, or ``builtin:NAME``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(bundled.resolved(value), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return options.completing(options.trace_names, files=True)(ctx, param, incomplete)


bundle_type = _BundlePath(path_type=Path)
bundle_argument = click.argument("bundle", type=bundle_type)
seed_option = click.option("--seed", type=click.IntRange(min=0), default=0)
devices_option = click.option(
    "-n", "--devices", type=click.IntRange(min=1), required=True, help="How many."
)
settings_option = options.set_option("settings", "A parameter by its (dotted) key")


def _writing(meaning: str, **settings: Any) -> Callable[[Any], Any]:
    """The options of a command that writes a file or folder."""
    output = options.output_option(meaning, **settings)
    return lambda command: output(options.force_option(options.json_option(command)))


def _populations() -> Mapping[str, Any]:
    return {**synthesis.PRESETS, **synthesis.FAMILIES}


@click.group(cls=Suggesting)
def command() -> None:
    """Import, download, synthesize, inspect and validate traces of devices.

    A trace bundle is a folder of manifest.json and Parquet tables that says when devices were available, how fast they
    computed and what their links carried. Scenarios name one under devices.trace.
    """


def _parameters(model: type[BaseModel], settings: tuple[str, ...], **given: Any) -> Any:
    """The parameters of options ``-s KEY=VALUE``, with ``given`` as defaults."""
    source = apply_overrides(Source("options", given), settings)
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        raise all_errors(problems(error, source.data), source) from error


def _write_new(
    make: Callable[[], TraceBundle],
    output: Path,
    force: bool,
    as_json: bool,
    doing: str = "working",
    *,
    has_name: bool = False,
) -> None:
    """Make a bundle, named after its folder unless it has a name, write it, and print what is in it."""
    check_output(output, overwrite=force)
    with advancing(doing):
        bundle = make()
    manifest = bundle.manifest
    words = click.get_current_context().obj
    # Without the options that only concern its output.
    command = format_command(*(word for word in words if word not in ("--force", "--json")))
    manifest.command = command
    manifest.name = manifest.name if has_name else output.name
    bundle.write(output, overwrite=force)
    rows = {name: table.num_rows for name, table in bundle.tables.items()}
    if as_json:
        summary = {"path": str(output), "name": manifest.name, "devices": bundle.device_count}
        summary |= {"days": round(manifest.horizon_us / 86_400e6, 4), "rows": rows}
        options.print_json({**summary, "counts": manifest.counts})
        return
    _warn(bundle)
    size = sum(file.stat().st_size for file in output.iterdir())
    terminal.secho(f"{manifest.name}: {format_counted(bundle.device_count, 'device')}", bold=True)
    for name, count in rows.items():
        click.echo(f"  {name:<16}{format_counted(count, 'row'):>16}")
    _print_counts(manifest.counts)
    for label, text in first_rows(first_look(bundle)).items():
        click.echo(f"  {label}: {text}")
    for caveat in manifest.caveats:
        click.echo(f"  note: {caveat}")
    click.echo(f"written to {output} ({format_bytes(size)})")


def _print_counts(counts: dict[str, int]) -> None:
    for kind, count in counts.items():
        if count:
            click.echo(f"  {kind.replace('_', ' ')}: {format_count(count)}")


def _print_names(parts: Mapping[str, Any], as_json: bool) -> None:
    options.print_rows({name: part.description for name, part in parts.items()}, as_json)


def makes_bundle(function: Callable[..., TraceBundle]) -> Callable[..., None]:
    """Adds the options of the output to a command that returns a new bundle, which is then written."""

    @functools.wraps(function)
    def run(output: Path, force: bool, as_json: bool, **arguments: Any) -> None:
        _write_new(lambda: function(**arguments), output, force, as_json)

    meaning = "Folder of the new trace bundle; its last part becomes its name."
    command: Callable[..., None] = _writing(meaning, required=True)(run)
    return command


@command.command()
@click.argument("population", required=False, shell_complete=options.completing(_populations))
@click.option("-n", "--devices", type=click.IntRange(min=1), help="Number of devices.")
@click.option("--days", type=float, default=7.0, help="Length in days.")
@seed_option
@click.option("--compute-series", is_flag=True, help="Let speeds vary over time.")
@click.option("--network-series", is_flag=True, help="Let link rates vary over time.")
@settings_option
@_writing("Folder of the new trace bundle.")
def synthesize(
    population: str | None,
    devices: int | None,
    compute_series: bool,
    network_series: bool,
    settings: tuple[str, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a synthetic trace bundle of a POPULATION: a calibrated preset or a simple family.

    Without arguments, list the populations; with only a POPULATION, describe it and its parameters. Parameters are set
    by part: -s availability.amplitude=0.3, -s compute.speed_sigma=0.5, -s network.rtt=40ms, -s compute_series.sd=0.1,
    -s network_series.cv=0.4.
    """
    if population is None:
        _print_names(_populations(), as_json)
        return
    if devices is None and output is None:
        _describe_population(population, as_json)
        return
    if devices is None or output is None:
        raise UserError("give the number of devices (-n) and the output folder (-o)")
    series = {"compute_series": compute_series, "network_series": network_series}
    given |= {table: {} for table, varies in series.items() if varies}
    given |= {"population": population, "devices": devices, "name": output.name}
    spec = _parameters(synthesis.Synthesis, settings, **given)
    with advancing("devices", total=devices) as progress:
        _write_new(lambda: synthesis.synthesize(spec, progress), output, force, as_json)


def _describe_population(name: str, as_json: bool) -> None:
    preset = synthesis.find_population(name)
    rows = [
        vars(row)
        | {"key": f"{section}.{row.key}"}
        | ({"default": str(preset_values[row.key])} if row.key in preset_values else {})
        for section, model, preset_values in synthesis.population_parameters(name)
        for row in parameters(model)
    ]
    text = f"{name}: {preset.description}"
    if preset.source:
        text += f"\nthe family {preset.family}, {preset.source}"
    _print_described(text, rows, as_json)


def _print_described(text: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        options.print_json(rows)
    else:
        click.echo(text)
        options.print_parameters(rows, "parameters (-s KEY=VALUE)", shows_null=False)


@command.command("import")
@click.argument(
    "format_",
    metavar="[FORMAT]",
    required=False,
    shell_complete=options.completing(lambda: CATALOG.parts("importer"), files=True),
)
@click.argument("files", nargs=-1, type=options.path_type)
@click.option(
    "--format",
    "importer_name",
    metavar="FORMAT",
    help="Name of the format, or file.py:ClassName for an importer of your own.",
)
@settings_option
@options.user_code_option
@_writing("Folder of the new trace bundle.")
def import_(
    format_: str | None,
    files: tuple[Path, ...],
    importer_name: str | None,
    settings: tuple[str, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Make a trace bundle from FILES in another FORMAT.

    Without arguments, list the formats; with only a FORMAT, describe it and its parameters. FORMAT may be omitted if
    it is clear from the files, or be given with the option --format. What the importer dropped or merged is printed and
    kept in the manifest.
    """
    if format_ is None and importer_name is None:
        _print_names(CATALOG.parts("importer"), as_json)
        return
    importer, paths = _importer(importer_name, format_, files)
    if not paths and output is None:
        text = without_markup(inspection.cleandoc(importer.__doc__ or ""))
        _print_described(text, list(map(vars, parameters(importer.Params))), as_json)
        return
    if not paths or output is None:
        raise UserError("give the files to import and the output folder (-o)")
    params = _parameters(importer.Params, settings, name=output.name)
    doing = f"reading {importer.name or importer.__name__}"
    made = functools.partial(import_bundle, importer, paths, params)
    _write_new(made, output, force, as_json, doing, has_name=True)


def _importer(
    name: str | None, first: str | None, files: tuple[Path, ...]
) -> tuple[type[Importer], tuple[Path, ...]]:
    """The importer that the options or the first argument name, or the files show, and the files to import."""
    if name is None and first is not None:
        is_known = first in CATALOG.parts("importer") or is_user_reference(first)
        if not is_known and not Path(first).exists() and Path(first).suffix:
            raise UserError("there is no such file", where=first)
        if is_known or not Path(first).exists():
            name, first = first, None
    paths = files if first is None else (Path(first), *files)
    if name is None:
        names = recognize(paths)
        if len(names) != 1:
            raise UserError(
                f"its format is not clear ({' or '.join(names) or 'none fits'})",
                where=paths[0],
                hint="if it is a table of sessions, changes or measurements, give --format table; formats: "
                + ", ".join(CATALOG.parts("importer")),
            )
        name = names[0]
        click.echo(f"format: {name}", err=True)
    return CATALOG.find("importer", name, Path.cwd()), paths  # type: ignore[return-value]


@command.command()
@click.argument("name", required=False, shell_complete=options.completing(lambda: public.TRACES))
@_writing("Folder of the new trace bundle; by default, NAME.")
def fetch(name: str | None, output: Path | None, force: bool, as_json: bool) -> None:
    """Download the public trace NAME and import it. Without arguments, list the traces.

    The files are checked by their SHA-256 and kept in the cache, so each is downloaded once. License and citation are
    printed and kept in the manifest.
    """
    if name is None:
        _print_names(public.TRACES, as_json)
        return
    trace = _known("public trace", name, public.TRACES)
    output = output or Path(name)
    check_output(output, overwrite=force)
    click.echo(f"license: {trace.license}\ncite: {trace.citation}", err=True)
    _write_new(lambda: trace.fetch(name, output.name), output, force, as_json)


def _known(noun: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise unknown(noun, name, known)
    return known[name]


@command.command()
@click.argument(
    "format_",
    metavar="FORMAT",
    required=False,
    shell_complete=options.completing(lambda: exporters.FORMATS),
)
@click.argument("bundle", type=bundle_type, required=False)
@settings_option
@_writing("File or folder to write.")
def export(
    format_: str | None,
    bundle: Path | None,
    settings: tuple[str, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a trace BUNDLE in another FORMAT. Without arguments, list the formats."""
    known = exporters.FORMATS
    if format_ is None:
        _print_names(known, as_json)
        return
    exporter = _known("format", format_, known)
    if bundle is None or output is None:
        raise UserError("give the trace bundle and the output (-o)")
    params = _parameters(exporter.Params, settings)
    loaded = require_sound(TraceBundle.read(bundle))
    with advancing(f"writing {format_}"):
        counts = exporter.write(loaded, output, params, overwrite=force)
    if as_json:
        options.print_json({"path": str(output), "counts": counts})
        return
    _print_counts(counts)
    click.echo(f"written to {output}")


@command.command()
@bundle_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    help="Maximum number of problems listed per kind.",
)
@options.json_option
def validate(bundle: Path, limit: int, as_json: bool) -> int:
    """Check a trace BUNDLE: list every problem with its table and row. The exit code is 2 if there is one."""
    loaded = TraceBundle.read(bundle, verify=False)
    with advancing("checking"):
        findings = validate_bundle(loaded, limit=limit)
    code = options.exit_code(2 if findings else 0)
    _warn(loaded)
    if as_json:
        options.print_json([vars(finding) for finding in findings])
    elif findings:
        for finding in findings:
            click.echo(str(finding))
        click.echo(format_counted(len(findings), "problem"), err=True)
    else:
        rows = sum(table.num_rows for table in loaded.tables.values())
        size = f"{format_counted(loaded.device_count, 'device')}, {format_counted(rows, 'row')}"
        click.echo(f"{loaded.manifest.name}: sound ({size})")
    return code


def _warn(bundle: TraceBundle) -> None:
    """Print warnings about a bundle to standard error; it may still be valid."""
    if bundle.unverified:
        reason = f"its manifest has no SHA-256 of {', '.join(bundle.unverified)}"
        click.echo(f"note: {bundle.where}: not verifiable: {reason}", err=True)
    for warning in filter(None, (implausible_times(bundle), implausible_rates(bundle))):
        click.echo(f"warning: {warning}", err=True)


@command.command()
@click.argument("bundles", nargs=-1, required=True, type=bundle_type)
@click.option(
    "--plot",
    type=options.path_type,
    help="Plot the distributions to this file: an interactive .html page, or .png, .svg or .pdf.",
)
@options.force_option
@options.json_option
def inspect(bundles: tuple[Path, ...], plot: Path | None, force: bool, as_json: bool) -> None:
    """Describe one trace bundle, or several BUNDLES side by side.

    Shows when devices are online by hour and weekday, how long sessions and gaps are and which distributions fit
    them, how much longer an online device stays online, and how speeds and link rates are spread.
    """
    from fedsim.analysis.bundles import require_drawable, write_plot

    if plot is not None:
        require_drawable(plot)
        if not force:
            require_new(plot, "name another file, or use --force to replace this one")
    with advancing("measuring"):
        loaded = [require_sound(TraceBundle.read(path)) for path in bundles]
        described = [describe(bundle) for bundle in loaded]
    for bundle in loaded:
        _warn(bundle)
    # Before the text, whose reader may stop reading.
    if plot is not None:
        write_plot(described, plot)
    if as_json:
        options.print_json([as_data(statistics) for statistics in described])
    else:
        # A file or a pipe has no width.
        console = terminal.console(
            width=None if sys.stdout.isatty() else 120 + 60 * (len(bundles) - 1)
        )
        write_text(described, console)
    if plot is not None:
        click.echo(f"plot written to {plot}", err=True)


@command.command()
@bundle_argument
@devices_option
@seed_option
@makes_bundle
def sample(bundle: Path, devices: int, seed: int) -> TraceBundle:
    """Draw a sample of a trace BUNDLE's usable devices, without replacement."""
    return combine.sample(require_sound(TraceBundle.read(bundle)), devices, seed)


@command.command()
@bundle_argument
@devices_option
@click.option(
    "--shift/--no-shift",
    default=True,
    help="Shift each copy by a random number of whole days.",
)
@seed_option
@makes_bundle
def scale(bundle: Path, devices: int, shift: bool, seed: int) -> TraceBundle:
    """Draw a population of any size from a trace BUNDLE, with replacement.

    Copies of one device are shifted by whole days, so that they do not move in step but keep their time of day.
    """
    return combine.scale(require_sound(TraceBundle.read(bundle)), devices, seed, shift=shift)


@command.command()
@bundle_argument
@click.option("--compute", type=bundle_type, help="Bundle with the compute columns.")
@click.option("--network", type=bundle_type, help="Bundle with the network columns.")
@click.option(
    "--compute-correlation",
    type=options.Finite(-1, 1),
    default=0.0,
    help="Rank correlation between a device's share of time online and its speed.",
)
@click.option(
    "--network-correlation",
    type=options.Finite(-1, 1),
    default=0.0,
    help="Rank correlation between a device's speed and its rate.",
)
@seed_option
@makes_bundle
def join(
    bundle: Path,
    compute: Path | None,
    network: Path | None,
    compute_correlation: float,
    network_correlation: float,
    seed: int,
) -> TraceBundle:
    """Give the devices of a trace BUNDLE the compute or network columns of other bundles.

    Each device gets the columns of a device drawn at random, regardless of ids. If files describe the same devices,
    import them together instead: fedsim traces import table sessions.csv links.csv.
    """
    if compute is None and network is None:
        hint = f"for example fedsim traces join {bundled.written(bundle)} --network builtin:phones_week -o NEW_BUNDLE"
        raise UserError("give --compute, --network or both", hint=hint)
    if (compute_correlation and compute is None) or (network_correlation and network is None):
        raise UserError("a correlation needs its --compute or --network")
    return combine.join(
        require_sound(TraceBundle.read(bundle)),
        require_sound(TraceBundle.read(compute)) if compute else None,
        require_sound(TraceBundle.read(network)) if network else None,
        seed,
        compute_correlation=compute_correlation,
        network_correlation=network_correlation,
    )
