"""Tables of the pages that benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown, with a line break at its end; empty if it has no rows."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    if len(lines) == 1:
        return ""
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:], ""])
