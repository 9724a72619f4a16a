"""The parts common to fedsim's pages: templates, embedded data, writing to disk."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from fedsim.analysis.palette import LOOKS
from fedsim.errors import UserError, printable, refused
from fedsim.files.durable import write_text
from fedsim.vocabulary.formatting import format_value

if TYPE_CHECKING:
    from fedsim.analysis.figures.base import Figure

TEMPLATES = Path(__file__).with_name("templates")
_LONG_NAME = 24
MARK = "# Written by fedsim, which may replace it"
"""The first line of a YAML file beside a page."""
_MARKS = (b'<meta name="generator" content="fedsim">', MARK.encode())
"""Each marks a file as written by fedsim; in the first bytes."""


def write_page(path: Path, page: str) -> None:
    """Write a page, and create its folder if necessary."""
    refuse_folder(path, "report.html")
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(
            "the page is HTML, so its name ends with .html",
            where=path,
            hint=f"write {path.with_suffix('.html')}"
            + ("; a browser prints it as a PDF" if path.suffix.lower() == ".pdf" else ""),
        )
    hint = "make its folder writable, or name another output; for a run: fedsim report RUN -o PAGE.html"
    with refused("cannot write the page", path, hint):
        require_own(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Names and texts of users and of files.
        write_text(path, printable(page))


def real_time(page: str) -> str:
    """A page about deployments, whose time is not simulated; the scripts of the page use the same words."""
    return page.replace("simulated time", "time").replace("Simulated time", "Time")


def refuse_folder(path: Path, file: str) -> None:
    """Raise a :class:`UserError` if the path of a file to write is that of a folder; its hint names ``file`` in it."""
    if path.is_dir():
        hint = f"name a file in it, such as {path / file}"
        if path.suffix == Path(file).suffix:
            hint = "rename or remove the folder, and repeat the command"
        raise UserError("is a folder", where=path, hint=hint)


def require_own(path: Path) -> None:
    """Raise a :class:`UserError` if there is a file that fedsim did not write."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_symlink() and path.is_file():
        with open(path, "rb") as file:
            start = file.read(2048)
        if any(mark in start for mark in _MARKS):
            return
    raise UserError(
        "exists and was not written by fedsim, so it is not overwritten",
        where=path,
        hint="rename or remove it, and repeat the command",
    )


def embedded(data: dict[str, Any]) -> Markup:
    """Data as JSON that is safe inside a script element."""
    document = json.dumps(data, separators=(",", ":"), allow_nan=False)
    # Nothing in the data may end the script element or open a comment in it.
    return Markup(document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def unbroken(text: str) -> Markup:
    """Text that does not break between numbers and units, inside durations, after ± and ≡ and inside the entries of
    ``lr 0.2, cohort 8``, and breaks long names such as ``server.schedule.over_selection=1.3`` after their separators.
    """
    text = re.sub(r"(^|, )(\w+) (?=\d)", "\\1\\2\u00a0", text)
    joined = re.sub(r"(?<![\w=.,])(\d(?:[\d.,]*\d)?) (?=[^\W\d])", "\\1\u00a0", text)
    joined = re.sub(r"(\d\u00a0(?:d|h|min)) (?=\d+\u00a0(?:h|min|s)\b)", "\\1\u00a0", joined)
    words = (
        re.split(r"(?<=[\w/][_=/.:])(?=[^\W\d])", word) if len(word) > _LONG_NAME else [word]
        for word in re.sub("([±≡]) ", "\\1\u00a0", joined).split(" ")
    )
    return Markup(" ").join(Markup("<wbr>").join(pieces) for pieces in words)


class _Drawn(dict[str, Any]):
    """The figures of a page by id, None for those that it lacks."""

    def __missing__(self, key: str) -> None:
        return None


def rendered(template: str, figures: Mapping[str, Figure], **words: Any) -> str:
    """A page as HTML text.

    Args:
        template: name of its template.
        figures: its figures by id, whose numbers are in the page.
        words: everything else that the template shows; ``data`` are more numbers for its script.
    """
    data = {name: figure.document() for name, figure in figures.items()} | words.pop("data", {})
    page = environment().get_template(template)
    return page.render(figures=_Drawn(figures), data=embedded(data), **words)


@functools.cache
def environment() -> jinja2.Environment:
    """The template environment, with the filters and functions of the pages."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"format_value": format_value, "unbroken": unbroken}
    made.globals |= {"zip": zip, "LOOKS": LOOKS}
    made.globals["inlined"] = lambda name: Markup((TEMPLATES / name).read_text(encoding="utf-8"))
    return made
