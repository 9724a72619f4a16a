"""``fedsim docs``: read the documentation, which also comes with a wheel, in the terminal.

Pages are Markdown. Where a page includes another file or is filled from docstrings when the site is built, the text
read here is complete as well. Notebooks are read as Markdown, without the results of their cells.
"""

from __future__ import annotations

import contextlib
import json
import pydoc
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import click

from fedsim import bundled
from fedsim.cli.options import completing, print_rows
from fedsim.errors import unknown
from fedsim.files import terminal

# Longer lines of prose are hard to read.
_WIDEST = 110
# A file that a page includes, from one of its lines on.
_INCLUDED = re.compile(r'^--8<-- "(?P<path>[^":]+)(?::(?P<line>\d+):)?"$', re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
# An object whose docstrings a page shows, and the members to show of it.
_OBJECT = re.compile(
    r"^::: (?P<name>[\w.]+)\n(?:    options:\n(?:      members: \[(?P<members>[^\]]*)\]\n)?(?: {6}.*\n)?)?",
    re.MULTILINE,
)


@click.command(name="docs")
@click.argument("page", required=False, shell_complete=completing(lambda: pages()))
def command(page: str | None) -> None:
    """Read a PAGE of the documentation, such as scenarios or tutorials/compare; without one, list all pages.

    Elsewhere than in a terminal, it writes the page's Markdown.
    """
    if page is not None:
        written = text(find(page))
        if sys.stdout.isatty():
            with contextlib.redirect_stdout(getattr(sys.stdout, "styled", sys.stdout)):
                click.echo_via_pager(_rendered(written))
        else:
            click.echo(written)
        return
    listed = pages().values()
    width = max(len(page.name) for page in listed)
    for section, members in groupby(listed, key=lambda page: page.section):
        if section:
            terminal.secho(f"\n{section}", bold=True)
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


class Page(NamedTuple):
    """A page: its name, such as ``tutorials/compare``, its title, the titles of its sections, and its file.

    Only the name of a notebook has a suffix. A page at the top of the navigation has no section.
    """

    name: str
    title: str
    section: str
    file: Path


def pages() -> dict[str, Page]:
    """All pages by name, in the order of the navigation, and the notebooks."""
    from ruamel.yaml import YAML

    settings = bundled.located("mkdocs.yml").read_text(encoding="utf-8")
    root = bundled.located("docs")
    listed = list(_listed(YAML(typ="safe").load(settings)["nav"], "", root))
    for file in sorted(root.rglob("*.ipynb")):
        title = _markdown(file).partition("\n")[0].lstrip("# ")
        listed.append(Page(file.relative_to(root).as_posix(), title, "Notebooks", file))
    return {page.name: page for page in listed}


def _listed(entries: list[dict[str, Any]], section: str, root: Path) -> Iterator[Page]:
    for title, target in (item for entry in entries for item in entry.items()):
        if isinstance(target, str):
            yield Page(target.removesuffix(".md"), title, section, root / target)
        else:
            yield from _listed(target, f"{section}: {title}" if section else title, root)


def find(name: str) -> Page:
    """The page called ``name``, which may leave out the folder, such as ``compare``."""
    stem = name.removeprefix("docs/").split("#")[0].removesuffix(".md").strip("/")
    known = {page.name.rpartition("/")[2]: page for page in reversed(pages().values())} | pages()
    if stem not in known:
        raise unknown("page", stem, known, every="fedsim docs lists all pages")
    return known[stem]


def text(page: Page) -> str:
    """The Markdown of a page, with included files and docstrings, and without comments."""
    if page.file.suffix == ".ipynb":
        return _markdown(page.file)
    written = page.file.read_text(encoding="utf-8")
    written = _COMMENT.sub("", _INCLUDED.sub(_included, written))
    return _OBJECT.sub(_described, written)


def _markdown(notebook: Path) -> str:
    """The cells of a notebook; those with code are blocks of Python."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = [(cell["cell_type"] == "code", "".join(cell["source"])) for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if code else text for code, text in sources)


def _included(match: re.Match[str]) -> str:
    lines = bundled.located(match["path"]).read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[int(match["line"] or 1) - 1 :])


def _described(match: re.Match[str]) -> str:
    name = match["name"]
    try:
        subject = pydoc.locate(name)
    except pydoc.ErrorDuringImport as error:  # An extra is not installed.
        return f"### `{name}`\n\nNot available here. {error.value}\n"
    members = re.findall(r"\w+", match["members"] or "")
    objects = {f"fedsim.{one}": getattr(subject, one) for one in members} or {name: subject}
    texts = {key: pydoc.plain(pydoc.render_doc(one, "%s")) for key, one in objects.items()}
    return "\n".join(f"### `{key}`\n\n```text\n{text}\n```\n" for key, text in texts.items())
