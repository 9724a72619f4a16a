"""Arguments, options and forms of output that several commands share."""

from __future__ import annotations

import functools
import logging
import math
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fedsim import bundled
from fedsim.cli import EXIT_CODE
from fedsim.errors import UserError, printable
from fedsim.files import terminal
from fedsim.files.documents import json_text
from fedsim.files.durable import named
from fedsim.parts.component import NO_USER_CODE

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completing(names: Callable[[], Iterable[str]], *, files: bool = False) -> Completion:
    """Completion of names in the shell, if ``files`` also of files that begin otherwise."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        # Shells do not mix names with files, so files come first while nothing is typed.
        matching = [CompletionItem(name) for name in names() if name.startswith(begun)]
        return (
            [CompletionItem(begun, type="file")] if files and not (begun and matching) else matching
        )

    return complete


complete_scenario = completing(bundled.scenarios, files=True)


def trace_names() -> list[str]:
    """The bundled traces, as a shell is to complete them."""
    # Bash completes what follows a colon as a separate word.
    after_colon = os.environ.get("COMP_WORDS", "").split()[-2:-1] == [":"]
    return [name if after_colon else f"{bundled.PREFIX}{name}" for name in bundled.traces()]


def _settings() -> list[str]:
    from fedsim.scenario.description import known_keys

    return [f"{key}=" for key in known_keys()]


class _Named(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty", param, ctx)
        return named(Path(os.fsdecode(super().convert(value, param, ctx))))


path_type = _Named(path_type=Path)
folder_type = _Named(path_type=Path, file_okay=False)

run_argument = click.argument("run", type=path_type)
# The loader reports a missing file, with what lies beside it.
scenario_argument = click.argument("scenario", type=path_type, shell_complete=complete_scenario)


class Finite(click.FloatRange):
    """A range of numbers; click's accepts NaN, which compares with no limit."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def output_option(meaning: str, *, is_page: bool = False, **settings: Any) -> Callable[[Any], Any]:
    """The option for the file or folder that a command writes; only ``is_page`` lets it be named as a page."""

    def plain(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and printable(str(path), lines=False) != str(path):
            raise UserError(
                "the name has a control character or is not UTF-8",
                where=f"option -o {str(path)!r}",
                hint="choose another name",
            )
        if path is not None and path.suffix == ".html" and not is_page:
            raise UserError(
                "the output is not a page but a folder",
                where=f"option -o {path}",
                hint=f"name a folder: -o {shlex.quote(str(path.with_suffix('')))}",
            )
        return path

    return click.option(
        "-o", "--output", **{"type": path_type, **settings}, callback=plain, help=meaning
    )


def set_option(
    name: str, meaning: str, metavar: str = "KEY=VALUE", **settings: Any
) -> Callable[[Any], Any]:
    """The option for values by key, passed as the argument ``name``."""
    help_text = f"{meaning}; may be repeated."
    return click.option(
        "-s", "--set", name, multiple=True, metavar=metavar, help=help_text, **settings
    )


override_option = set_option(
    "overrides",
    "Set a value by its dotted path, such as -s training.optimizer.lr=0.05",
    "PATH=VALUE",
    shell_complete=completing(_settings),
)


run_config_option = click.option(
    "--run-config",
    default="",
    show_default=False,
    metavar="TEXT",
    help='Override the configuration of a Flower app, such as --run-config "num-server-rounds=5".',
)


def _flag(*names: str) -> Callable[[str], Callable[[Any], Any]]:
    return lambda meaning: click.option(*names, is_flag=True, help=meaning)


overwrite_option = _flag("--overwrite")
json_option = _flag("--json", "as_json")("Write JSON for scripts.")
force_option = _flag("--force")("Replace the output; a folder, only if fedsim wrote it.")
timing_only_option = _flag("--timing-only")("Simulate only time, without training.")


def _refuse_user_code(ctx: click.Context, _: click.Parameter, refused: bool) -> None:
    if refused:
        before = os.environ.get(NO_USER_CODE, "")
        os.environ[NO_USER_CODE] = "1"  # A variable, because processes that are started inherit it.
        ctx.call_on_close(lambda: os.environ.__setitem__(NO_USER_CODE, before))
    # Files of users are named on the terminal before they are imported.
    logger = logging.getLogger("fedsim")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    ctx.call_on_close(lambda: logger.removeHandler(handler))


user_code_option = click.option(
    "--no-user-code",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_refuse_user_code,
    help=f"Refuse to import code that a scenario names (file.py:Class); also {NO_USER_CODE}=1.",
)
"""For the commands that import users' files."""


def _rules() -> list[str]:
    from fedsim.composition.rules.finished import documentation

    return list(documentation())


ignore_option = click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    shell_complete=completing(_rules),
    help="Do not give the warnings of this rule ('fedsim describe rules' lists them); may be repeated.",
)


def scenario_options(command: Any) -> Any:
    """The scenario file, values set in it, rules to ignore, and whether users' code may run."""
    return scenario_argument(override_option(ignore_option(user_code_option(command))))


def loaded_scenario(command: Callable[..., Any]) -> Any:
    """:func:`scenario_options`, passed as the scenario ``loaded``; those of :func:`engine_options` are settings."""

    @functools.wraps(command)
    def run(
        scenario: Path, overrides: tuple[str, ...], ignore: tuple[str, ...], **others: Any
    ) -> Any:
        settings = engine_settings(**others) if "engine" in others else others
        from fedsim.scenario.loading import load_scenario

        loaded = load_scenario(scenario, overrides=overrides).ignoring(ignore)
        return command(loaded=loaded, **settings)

    return scenario_options(run)


def whole_help(ctx: click.Context) -> str:
    """The help of a command with its hidden options."""
    for option in ctx.command.params:
        vars(option)["hidden"] = False
    return ctx.get_help()


def engine_options(command: Any) -> Any:
    """Where runs take place: arguments ``jobs`` and those of :func:`engine_settings`."""

    def shown(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
        if requested:
            click.echo(whole_help(ctx))
            ctx.exit()

    hidden = functools.partial(click.option, hidden=True)
    options = (
        click.option(
            "-j",
            "--jobs",
            type=click.IntRange(1, 10_000),
            help="Concurrent runs, one core each; by default one per core. With 1, runs execute in this process.",
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "ray", "slurm"]),
            default="local",
            help="Processes on this machine, a Ray cluster (extra 'ray'), or an array of Slurm (extra 'slurm').",
        ),
        click.option(
            "--help-engines",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=shown,
            help="Show the options of Ray and Slurm, too, and exit.",
        ),
        hidden(
            "--address", metavar="ADDRESS", help="Address of a Ray cluster: auto, or host:port."
        ),
        hidden(
            "--gpus-per-run",
            type=Finite(0, min_open=True),
            default=1.0,
            help="Ray: GPUs of a run, if the cluster has any; with 0.25, four runs share one.",
        ),
        hidden("--partition", help="Slurm: partition of the runs."),
        hidden(
            "--time",
            "limit",
            default="1h",
            metavar="DURATION",
            help="Slurm: wall time of a run; one that needs more is queued again, and resumed.",
        ),
        hidden("--memory", default="4GB", metavar="SIZE", help="Slurm: memory of a run."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def engine_settings(
    jobs: int | None,
    engine: str,
    address: str | None,
    gpus_per_run: float,
    partition: str | None,
    limit: str,
    memory: str,
    **others: Any,
) -> dict[str, Any]:
    """The arguments of :func:`engine_options` as those of :func:`fedsim.sweeps.sweep`; processes begin to load."""
    chosen: Any = None
    if address is not None and engine != "ray":
        raise UserError(
            "an address is only for a Ray cluster", where="--address", hint="add --engine ray"
        )
    if engine == "local" and jobs != 1:
        from fedsim.sweeps.local import prepare

        prepare()
    elif engine == "ray":
        from fedsim.sweeps.cluster import Ray

        chosen = Ray(address, gpus_per_run)
    elif engine == "slurm":
        from fedsim.sweeps.cluster import Slurm

        chosen = Slurm.parse(partition, limit, memory)
    return {**others, "jobs": jobs, "engine": chosen}


def exit_code(code: int) -> int:
    """Set the exit code of the command before it prints, because the reader of its output may be gone."""
    click.get_current_context().meta[EXIT_CODE] = code
    return code


def print_json(data: Any) -> None:
    """Print data for scripts, as JSON."""
    click.echo(json_text(data, indent=2))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    common: Collection[str] = (),
    **look: Any,
) -> None:
    """Print a table without its empty columns; in a file or a pipe, its lines stay whole.

    In a terminal, cells wrap between words. If the longest words do not fit side by side, each row is a block of lines.

    Args:
        headings: titles of the columns.
        rows: their cells.
        right: headings of the columns that are aligned at the right.
        common: headings of columns that a line replaces if their cells are equal and would make others wrap.
        look: arguments of ``rich.table.Table``.
    """
    from rich.cells import cell_len
    from rich.table import Table

    shown = [["\n".join(map(printable, text.split("\n"))) for text in row] for row in rows]
    columns = [each for each in zip(headings, *shown, strict=True) if any(each[1:])]
    heads, *cells = zip(*columns, strict=True)
    console = terminal.console(width=None if sys.stdout.isatty() else terminal.WIDEST)
    table = Table(*heads, **{"show_edge": False, **look})
    for row in cells:
        table.add_row(*row)
    for column, head in zip(table.columns, heads, strict=True):
        column.justify = "right" if head in right else "left"
    lines, words = (
        [max(cell_len(part) for text in each for part in (split(text) or [""])) for each in columns]
        for split in (str.splitlines, str.split)
    )
    whole = console.measure(table, options=console.options.update(width=terminal.WIDEST)).maximum
    room = console.width - (whole - sum(lines))
    same = {
        head: text
        for head, text, *texts in columns
        if head in common and texts and {text} == {*texts}
    }
    if sum(lines) > room and same:
        click.echo(f"in all rows: {', '.join(map(' '.join, same.items()))}")
        kept = [each for each in columns if each[0] not in same]
        heads, *cells = zip(*kept, strict=True)
        print_table(heads, cells, right=right, **look)
        return
    while sum(lines) > room and lines != words:
        # The widest column that can still wrap.
        lines[max(range(len(lines)), key=lambda k: (lines[k] > words[k]) * lines[k])] -= 1
    if sum(lines) <= room:
        for column, width in zip(table.columns, lines, strict=True):
            column.width = width
        console.print(table)
        return
    for name, *values in cells:
        # A line breaks between entries, and within those that are longer than it.
        entries = [
            entry.replace(" ", "\0") if len(entry) < console.width - 2 else entry
            for head, text in zip(heads[1:], values, strict=True)
            if text and (entry := f"{head}: {text}")
        ]
        terminal.secho(name)
        terminal.secho(_filled("; ".join(entries), console.width, "  ").replace("\0", " "))


def _filled(text: str, width: int, first: str) -> str:
    """Text in lines that break between words, never at the hyphen of a name."""
    wrapper = textwrap.TextWrapper(max(width, 1), first, "  ", break_on_hyphens=False)
    return wrapper.fill(text)


def echo_bullet(text: str, **style: Any) -> None:
    """Print an item of a list, wrapped to the width of a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else terminal.WIDEST
    terminal.secho(_filled(text, columns - 1, "• "), **style)


def print_rows(rows: Mapping[str, str], as_json: bool = False, *, indent: str = "") -> None:
    """Print names, each with a line about it."""
    if as_json:
        print_json(rows)
        return
    width = max(map(len, rows))
    for name, line in rows.items():
        click.echo(f"{indent}{name:<{width}}  {line}".rstrip())


def print_parameters(
    rows: Iterable[Mapping[str, Any]], title: str = "parameters", *, shows_null: bool = True
) -> None:
    """Print the attributes of :class:`fedsim.scenario.description.Parameter` objects."""
    from fedsim.scenario.description import units_of_numbers

    rows = list(rows)
    terminal.secho(f"\n{title}" if rows else "\nno parameters", bold=True)
    for row in rows:
        default = row["default"]
        given = ", required" if default is None else f", default {default or 'see below'}"
        if default == "null" and not shows_null:
            given = ""
        click.echo(f"  {row['key']}: {row['kind']}{given}")
        if row["meaning"]:
            echo_text(row["meaning"], "      ")
    if units := units_of_numbers(row["kind"] for row in rows):
        echo_text(units, "  ")


def echo_text(text: str, indent: str = "") -> None:
    """Print prose with its paragraphs, wrapped to the width of a terminal; elsewhere each line stays whole."""
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns - 1, 1)
        text = click.wrap_text(text, width, indent, indent, preserve_paragraphs=True)
    else:
        text = indent + text
    click.echo(text)
