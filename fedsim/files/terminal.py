"""Text for a terminal: colors and movements of the cursor are fedsim's, and no text from a file is one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

import click

from fedsim.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 10_000
"""Characters of a line, also of one that is not to be broken."""


class Escaping:
    """A standard stream whose text is :func:`printable`; ``styled`` is the one behind it, for fedsim's own styles."""

    encoding = "utf-8"
    """Click would write around a stream for ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self.styled = stream

    def write(self, text: str) -> int:
        """Write the text."""
        self.styled.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.styled, name)


def console(*, stderr: bool = False, **look: Any) -> Console:
    """A console for text that may come from files, on standard output or ``stderr``."""
    from rich.console import Console
    from rich.segment import Segment

    class Printing(Console):
        def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
            for text, style, control in super().render(*args, **options):
                yield Segment(text if control else printable(text), style, control)

        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text), **options)

    stream = sys.stderr if stderr else sys.stdout
    file = getattr(stream, "styled", stream)
    made = Printing(**{"file": file, "highlight": False, "markup": False, **look})
    if not 0 < made.width <= WIDEST:  # COLUMNS may be any number.
        made.width = min(max(made.width, 1), WIDEST)
    return made


def secho(text: str, **style: Any) -> None:
    """Print text, which may come from files, in a style."""
    file = getattr(sys.stdout, "styled", sys.stdout)
    click.secho(printable(text), file=file, color=file.isatty(), **style)
