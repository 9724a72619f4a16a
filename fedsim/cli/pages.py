"""The pages of the documentation, which also come with a wheel.

Pages are Markdown. Where a page includes another file or is filled from docstrings when the site is built, the text
read here is complete as well. Notebooks are read as Markdown, without the results of their cells.
"""

from __future__ import annotations

import inspect
import json
import pydoc
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import bundled
from fedsim.errors import UserError, nearest_or_all
from fedsim.parts.parameters import without_markup

_NOTEBOOK = ".ipynb"
# A file that a page includes, from one of its lines on.
_INCLUDED = re.compile(r'^--8<-- "(?P<path>[^":]+)(?::(?P<line>\d+):)?"$', re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
# An object whose docstrings a page shows, and the members to show of it.
_OBJECT = re.compile(
    r"^::: (?P<name>[\w.]+)\n(?:    options:\n(?:      members: \[(?P<members>[^\]]*)\]\n)?"
    r"(?:      inherited_members: (?P<inherited>true)\n)?)?",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the documentation.

    Attributes:
        name: its file in the folder of the documentation, such as ``tutorials/compare``; only a notebook has a suffix.
        title: its title in the navigation.
        section: titles of the sections that it belongs to, joined by colons; empty at the top.
        file: its file.
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
    listed = _listed(YAML(typ="safe").load(settings)["nav"], "", root)
    return {page.name: page for page in (*listed, *_notebooks(root))}


def _notebooks(root: Path) -> Iterator[Page]:
    for file in sorted(root.rglob(f"*{_NOTEBOOK}")):
        title = _markdown(file).partition("\n")[0].lstrip("# ")
        yield Page(file.relative_to(root).as_posix(), title, "Notebooks", file)


def _listed(entries: list[dict[str, Any]], section: str, root: Path) -> Iterator[Page]:
    for entry in entries:
        for title, target in entry.items():
            if isinstance(target, str):
                yield Page(target.removesuffix(".md"), title, section, root / target)
            else:
                yield from _listed(target, f"{section}: {title}" if section else title, root)


def find(name: str) -> Page:
    """The page called ``name``, which may leave out the folder, such as ``compare``.

    Raises:
        UserError: no page is called so.
    """
    known = pages()
    stem = name.removeprefix("docs/").split("#")[0].removesuffix(".md").strip("/")
    if stem in known:
        return known[stem]
    in_folders = [page for page in known.values() if page.name.endswith(f"/{stem}")]
    if len(in_folders) == 1:
        return in_folders[0]
    if in_folders:
        alternatives = " or ".join(page.name for page in in_folders)
        raise UserError(f"several pages are called '{name}'", hint=f"write {alternatives}")
    names = [*known, *(page.rsplit("/", 1)[-1] for page in known if "/" in page)]
    raise UserError(
        f"there is no page '{name}'",
        hint=nearest_or_all(stem, names, "fedsim docs lists all pages"),
    )


def text(page: Page) -> str:
    """The Markdown of a page, with included files and docstrings, and without comments."""
    if page.file.suffix == _NOTEBOOK:
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
    name, members = match["name"], match["members"]
    try:
        subject = pydoc.locate(name)
    except pydoc.ErrorDuringImport as error:  # An extra is not installed.
        return f"### `{name}`\n\nNot available here. {error.value}\n"
    if members is not None:
        functions = [member.strip() for member in members.split(",")]
        return "\n".join(_entry(f"fedsim.{one}", getattr(subject, one), 3) for one in functions)
    entries = [_entry(name, subject, 3)]
    if inspect.isclass(subject):
        for member, value in inspect.getmembers(subject):
            shown = inspect.isfunction(value) or isinstance(value, property)
            is_listed = member in vars(subject) or match["inherited"]
            if shown and is_listed and not member.startswith("_") and value.__doc__:
                entries.append(_entry(f"{subject.__name__}.{member}", value, 4))
    return "\n".join(entries)


def _entry(name: str, subject: object, level: int) -> str:
    """A heading, the signature if there is one, and the docstring."""
    signature = ""
    if callable(subject):
        signature = f"```python\n{name.rsplit('.', 1)[-1]}{_signature(subject)}\n```\n\n"
    documentation = without_markup(inspect.getdoc(subject) or "")
    return f"{'#' * level} `{name}`\n\n{signature}```text\n{documentation}\n```\n"


class _Unquoted(str):
    """An annotation that signatures show without quotes."""

    __repr__ = str.__str__


def _signature(subject: Callable[..., object]) -> inspect.Signature:
    """The parameters, without ``self``; those of a model with their types as its source names them."""
    classes = subject.__mro__ if isinstance(subject, type) else ()
    sources: dict[str, object] = {}
    for one in reversed(classes):
        sources |= vars(one).get("__annotations__", {})

    def unquoted(annotation: object) -> object:
        return _Unquoted(annotation) if isinstance(annotation, str) else annotation

    signature = inspect.signature(subject)
    parameters = [
        parameter.replace(annotation=unquoted(sources.get(parameter.name, parameter.annotation)))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    returned = unquoted(signature.return_annotation)
    return signature.replace(parameters=parameters, return_annotation=returned)
