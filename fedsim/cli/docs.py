"""``fedsim docs``: read the documentation in the terminal."""

from __future__ import annotations

import shutil
import sys
from itertools import groupby

import click

from fedsim import bundled
from fedsim.cli import pages
from fedsim.cli.options import completing, print_rows

# Longer lines of prose are hard to read.
_WIDEST = 110


@click.command(name="docs")
@click.argument("page", required=False, shell_complete=completing(pages.pages))
def command(page: str | None) -> None:
    """Read a PAGE of the documentation, such as scenarios or tutorials/compare; without one, list all pages.

    Elsewhere than in a terminal, it writes the page's Markdown.
    """
    if page is None:
        _list()
        return
    text = pages.text(pages.find(page))
    if sys.stdout.isatty():
        click.echo_via_pager(_rendered(text), color=True)
    else:
        click.echo(text)


def _list() -> None:
    listed = pages.pages().values()
    width = max(len(page.name) for page in listed)
    for section, members in groupby(listed, key=lambda page: page.section):
        if section:
            click.secho(f"\n{section}", bold=True)
        print_rows({f"{page.name:<{width}}": page.title for page in members})
    root = bundled.located("docs")
    click.echo(f"\nread one: fedsim docs scenarios; the files: {root}", err=True)


def _rendered(text: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    # Code on a background of its own, as by default, is hard to read in a light terminal. A terminal cannot follow
    # links to other pages, so their names are shown.
    console = Console(
        force_terminal=True,
        width=min(shutil.get_terminal_size().columns, _WIDEST),
        theme=Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"}),
    )
    with console.capture() as capture:
        console.print(Markdown(text, hyperlinks=False))
    return capture.get()
