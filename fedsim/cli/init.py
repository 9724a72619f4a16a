"""``fedsim init``: write a project to start from."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import click

from fedsim.bundled import template_files, templates
from fedsim.cli import options
from fedsim.errors import UserError, refused
from fedsim.vocabulary.formatting import format_names


def _list(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested:
        options.print_rows(templates())
        ctx.exit()


@click.command(name="init")
@click.argument("folder", metavar="[DIR]", type=options.path_type, default=Path())
@click.option(
    "-t",
    "--template",
    default="quickstart",
    metavar="NAME",
    shell_complete=options.completing(templates),
    help="Template to start from; --list shows all of them.",
)
@click.option(
    "--list",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_list,
    help="List the templates and exit.",
)
def command(folder: Path, template: str) -> None:
    """Write a commented project into DIR (the working directory by default).

    A project is a scenario.yaml, a README.md with the commands to try, and the Python or data files that the
    template needs. No existing file is replaced.
    """
    files = template_files(template)
    if folder.is_file() or (folder.suffix in (".yaml", ".yml") and not folder.is_dir()):
        plain = folder.with_suffix("")
        other = folder.with_name(f"{folder.stem}-project") if plain.exists() else plain
        hint = f"for example {other}; it gets a scenario.yaml"
        raise UserError("give a folder, not a file", where=folder, hint=hint)
    # Nothing is written through a link, either.
    own = folder.resolve()
    if existing := [
        each for each in files if (own / each).exists() or (own / each).resolve() != own / each
    ]:
        hint = f"choose another folder, such as {folder.name or 'my'}-project"
        raise UserError(f"already has {format_names(existing)}", where=folder, hint=hint)
    with contextlib.ExitStack() as undoing:
        for name, content in files.items():
            path = folder / name
            with refused("cannot be written", path):
                for parent in reversed([each for each in path.parents if not each.exists()]):
                    parent.mkdir(exist_ok=True)  # It may end with two dots.
                    undoing.callback(parent.rmdir)
                with path.open("xb") as file:
                    undoing.callback(path.unlink)
                    file.write(content)
        undoing.pop_all()
    click.echo(f"wrote {', '.join(files)} to {folder}")
    text = files["README.md"].decode()
    commands = text.partition("```console\n")[2].partition("```")[0].splitlines()
    extra = re.search(r'`(pip install "fedsim-des\[.*?)`', text)
    first = [] if folder == Path.cwd() else [f"cd {folder}"]
    click.echo("next:")
    for line in first + ([extra[1]] if extra else []) + commands:
        click.echo(f"  {line}")
